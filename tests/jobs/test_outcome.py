"""What the end of a process means for its job."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from strop.jobs.launcher import UNKNOWN_EXIT
from strop.jobs.outcome import cannot_start, judge
from strop.jobs.states import JobStatus

PLENTY = 2**40
FULL = "cannot be written\nMend that, then resume the job"


@pytest.mark.parametrize(
    ("run", "code", "wanted", "status", "reason"),
    [
        ({"state": "succeeded"}, 0, None, JobStatus.SUCCEEDED, ""),
        ({"state": "succeeded"}, 0, "pause", JobStatus.SUCCEEDED, ""),
        ({"state": "succeeded"}, 0, "cancel", JobStatus.CANCELLED, ""),
        ({"state": "paused"}, 0, "cancel", JobStatus.CANCELLED, ""),
        ({"state": "running"}, -9, "cancel", JobStatus.CANCELLED, ""),
        ({"state": "paused", "step": 3}, 0, "pause", JobStatus.PAUSED, "paused after step 3 on request"),
        ({"state": "running", "step": 3}, -15, "pause", JobStatus.PAUSED, "goes on from the newest checkpoint"),
        ({"state": "paused"}, 0, None, JobStatus.PAUSED, "asked to stop from outside"),
        ({"state": "running"}, -9, None, None, "killed (SIGKILL)"),
        ({"state": "running"}, -11, None, None, "ended by SIGSEGV"),
        ({"state": "starting"}, 1, None, None, "exit code 1"),
        ({}, UNKNOWN_EXIT, None, None, "while no server watched"),
        ({"state": "failed", "code": "unexpected_error", "message": "TypeError: no"}, 1, None, None, "TypeError: no"),
        ({"state": "failed", "message": "of an older version"}, 1, None, None, "of an older version"),
        ({"state": "failed", "code": "invalid_data", "message": "line 3"}, 1, None, JobStatus.FAILED, "line 3"),
        ({"state": "failed", "code": "invalid_data", "message": "line 3"}, 1, "pause", JobStatus.FAILED, "line 3"),
        ({"state": "failed", "code": "training_diverged", "message": "NaN"}, 1, None, JobStatus.FAILED, "NaN"),
        ({"state": "failed", "code": "disk_full", "message": FULL}, 1, None, JobStatus.PAUSED, FULL),
        ({"state": "failed", "code": "out_of_memory", "message": "CUDA"}, 1, None, JobStatus.PAUSED, "resume the job"),
        (
            {"state": "failed", "code": "too_many_failed_groups", "message": "9 of 10"},
            1,
            None,
            JobStatus.PAUSED,
            "9 of 10\nMend that, then resume the job",
        ),
    ],
)
def test_an_end_and_what_follows(
    run: dict[str, Any], code: int, wanted: Any, status: JobStatus | None, reason: str
) -> None:
    outcome = judge(run, code, wanted, PLENTY)
    assert outcome.status is status
    assert reason in (outcome.reason or "")


def test_what_is_wrong_keeps_its_code_and_its_key() -> None:
    run = {"state": "failed", "code": "invalid_config", "param": "train.batch_size", "message": "no"}
    outcome = judge(run, 1, None, PLENTY)
    assert (outcome.code, outcome.param) == ("invalid_config", "train.batch_size")


def test_a_process_that_could_not_even_say_that_the_disk_is_full() -> None:
    outcome = judge({"state": "running"}, 1, None, 2**20)
    assert (outcome.status, outcome.code) == (JobStatus.PAUSED, "disk_full")
    assert outcome.reason == "the disk is full: 1.0 MiB are free; make room, then resume the job"


def test_a_process_that_cannot_be_started_is_tried_again_unless_the_disk_is_full() -> None:
    full = cannot_start(OSError(errno.ENOSPC, "No space left on device", "runs/raw_output.log"))
    assert (full.status, full.code) == (JobStatus.PAUSED, "disk_full")
    assert "raw_output.log" in (full.reason or "")
    assert cannot_start(OSError(errno.EAGAIN, "no more processes")).status is None
