"""Which status may follow which."""

from __future__ import annotations

import pytest

from strop.jobs.task import TRANSITIONS, TaskStatus


def test_every_status_has_its_transitions() -> None:
    assert TRANSITIONS.keys() == set(TaskStatus)


@pytest.mark.parametrize("status", TaskStatus)
def test_only_a_failed_task_comes_back_once_it_has_ended(status: TaskStatus) -> None:
    assert status.finished == (status in (TaskStatus.SUCCEEDED, TaskStatus.FAILED, TaskStatus.CANCELLED))
    assert (status.finished and status is not TaskStatus.FAILED) == (not TRANSITIONS[status])
