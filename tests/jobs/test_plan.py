"""Which waiting tasks start now, and when the model process should make room."""

from __future__ import annotations

import pytest

from strop.jobs.plan import Demand, Plan, Served, make_plan
from strop.jobs.task import Task, TaskStatus

AT_ONCE = {"training": 2, "evaluation": 1}
DEVICE = 10


def asking(text: str) -> tuple[Task, Demand]:
    """A task of a kind with its place behind it, and what it needs: t1, t2:6, e3:served."""
    name, _, need = text.partition(":")
    kind = {"t": "training", "e": "evaluation", "x": "other"}[name[0]]
    place = int(name[1:])
    unset = (None,) * 4
    task = Task(place, name, 0.0, kind, TaskStatus.QUEUED, *unset, None, name, place, None, None, 0, 0, *unset)
    return task, Demand(served=True) if need == "served" else Demand(int(need or 0))


def planned(waiting: str, running: str = "", served: Served | None = None) -> Plan:
    ask = [asking(text) for text in waiting.split()]
    return make_plan(ask, [asking(text) for text in running.split()], AT_ONCE, DEVICE, served or Served())


def shown(plan: Plan) -> str:
    """What starts, what waits for memory after a bar, and a plus where room should be made."""
    started = " ".join(task.id for task in plan.start)
    blocked = f"|{plan.blocked.id}" if plan.blocked else ""
    return f"{started}{blocked}{'+' if plan.make_room else ''}"


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
def test_each_kind_has_slots_of_its_own_in_the_order_of_the_queue(waiting: str, running: str, chosen: str) -> None:
    assert shown(planned(waiting, running)) == chosen


@pytest.mark.parametrize(
    ("waiting", "running", "chosen"),
    [
        ("t1:6 e2:4", "", "t1 e2"),
        ("t1:6 e2:5", "", "t1|e2"),
        ("e2:5", "t1:6", "|e2"),
        ("e2:4", "t1:6", "e2"),
        ("t1:50", "", "t1"),  # alone it starts: estimates err
        ("t1:50", "x9", "t1"),
        ("t1:50 e2:1", "", "t1|e2"),
        ("t2:8 t3:1", "t1:6", "|t2"),  # nothing newer that needs the device overtakes
        ("t2:8 e3:1", "t1:6", "|t2"),
        ("t2:8 e3:served", "t1:6", "|t2"),
        ("t2:8 e3 x4", "t1:6", "e3 x4|t2"),
        ("t3:8 e4:1", "t1:2 t2:2", "e4"),  # what waits for a slot holds up no other kind
    ],
)
def test_what_needs_memory_starts_in_order_and_only_beside_what_it_fits(
    waiting: str, running: str, chosen: str
) -> None:
    assert shown(planned(waiting, running)) == chosen


@pytest.mark.parametrize(
    ("waiting", "running", "held", "idle", "chosen"),
    [
        ("t1:4", "", 6, True, "t1"),
        ("t1:5", "", 6, True, "|t1+"),
        ("t1:5", "", 6, False, "|t1"),
        ("t1:50", "", 1, True, "|t1+"),  # it will be alone
        ("t1:5", "e2:served", 6, True, "|t1"),  # an evaluation asks those models
        ("t2:5", "t1:4", 2, True, "|t2+"),
        ("t2:8", "t1:4", 2, True, "|t2"),  # that would not suffice
        ("x1", "", 6, True, "x1"),
    ],
)
def test_idle_models_make_room_where_that_lets_a_task_start(
    waiting: str, running: str, held: int, idle: bool, chosen: str
) -> None:
    assert shown(planned(waiting, running, Served(held, idle))) == chosen


def test_the_plan_says_how_much_memory_is_left_for_the_task_that_waits() -> None:
    assert planned("t2:8", "t1:6", Served(1)).free_bytes == 3
    assert planned("t2:8", "t1:60").free_bytes == 0
