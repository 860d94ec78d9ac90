"""Which waiting tasks start now."""

from __future__ import annotations

import pytest

from strop.jobs.plan import next_tasks
from strop.jobs.task import Task, TaskStatus

AT_ONCE = {"training": 2, "evaluation": 1}


def task(text: str) -> Task:
    """A task of a kind, with its place behind it: t1, e2."""
    kind = {"t": "training", "e": "evaluation", "x": "other"}[text[0]]
    place = int(text[1:])
    unset = (None,) * 4
    return Task(place, text, 0.0, kind, TaskStatus.QUEUED, *unset, None, text, place, None, None, 0, 0, *unset)


@pytest.mark.parametrize(
    ("waiting", "running", "chosen"),
    [
        ("", "", ""),
        ("t1 t2 t3", "", "t1 t2"),
        ("t2 t3", "t1", "t2"),
        ("t3", "t1 t2", ""),
        ("e1 e2 e3 e4 t5", "", "e1 t5"),
        ("t1 t2 t3 t4 e5", "t8 t9", "e5"),
        ("x1 x2", "", "x1"),
    ],
)
def test_each_kind_has_places_of_its_own_in_the_order_of_the_queue(waiting: str, running: str, chosen: str) -> None:
    found = next_tasks([task(text) for text in waiting.split()], [task(text) for text in running.split()], AT_ONCE)
    assert [task.id for task in found] == chosen.split()
