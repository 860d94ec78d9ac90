"""Which status may follow which."""

from __future__ import annotations

import pytest

from strop.jobs.states import TRANSITIONS, JobStatus


def test_every_status_has_its_transitions() -> None:
    assert TRANSITIONS.keys() == set(JobStatus)


@pytest.mark.parametrize("status", JobStatus)
def test_only_a_failed_job_comes_back_once_it_has_ended(status: JobStatus) -> None:
    assert status.finished == (status in (JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.CANCELLED))
    assert (status.finished and status is not JobStatus.FAILED) == (not TRANSITIONS[status])
