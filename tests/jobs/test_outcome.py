"""What the end of a process means for its job."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from strop.jobs.kind import Exit, Restart, Settled
from strop.jobs.launcher import UNKNOWN_EXIT
from strop.jobs.outcome import cannot_start, classify_exit
from strop.jobs.task import TaskStatus

PLENTY = 2**40
FULL = "cannot be written\nFix that, then resume the job"


@pytest.mark.parametrize(
    ("run", "code", "wanted", "status", "reason"),
    [
        ({"state": "succeeded"}, 0, None, TaskStatus.SUCCEEDED, ""),
        ({"state": "succeeded"}, 0, "pause", TaskStatus.SUCCEEDED, ""),
        ({"state": "succeeded"}, 0, "cancel", TaskStatus.CANCELLED, ""),
        ({"state": "paused"}, 0, "cancel", TaskStatus.CANCELLED, ""),
        ({"state": "running"}, -9, "cancel", TaskStatus.CANCELLED, ""),
        ({"state": "paused", "step": 3}, 0, "pause", TaskStatus.PAUSED, "paused after step 3 on request"),
        ({"state": "running", "step": 3}, -15, "pause", TaskStatus.PAUSED, "resumes from the newest checkpoint"),
        ({"state": "paused"}, 0, None, TaskStatus.PAUSED, "received SIGTERM from outside"),
        ({"state": "running"}, -9, None, None, "killed (SIGKILL)"),
        ({"state": "running"}, -11, None, None, "ended by SIGSEGV"),
        ({"state": "starting"}, 1, None, None, "exit code 1"),
        ({}, UNKNOWN_EXIT, None, None, "while no server watched"),
        ({"state": "failed", "code": "unexpected_error", "message": "TypeError: no"}, 1, None, None, "TypeError: no"),
        ({"state": "failed", "message": "of an older version"}, 1, None, None, "of an older version"),
        ({"state": "failed", "code": "invalid_data", "message": "line 3"}, 1, None, TaskStatus.FAILED, "line 3"),
        ({"state": "failed", "code": "invalid_data", "message": "line 3"}, 1, "pause", TaskStatus.FAILED, "line 3"),
        ({"state": "failed", "code": "training_diverged", "message": "NaN"}, 1, None, TaskStatus.FAILED, "NaN"),
        ({"state": "failed", "code": "disk_full", "message": FULL}, 1, None, TaskStatus.PAUSED, FULL),
        ({"state": "failed", "code": "out_of_memory", "message": "CUDA"}, 1, None, TaskStatus.PAUSED, "resume the job"),
        (
            {"state": "failed", "code": "too_many_failed_groups", "message": "9 of 10"},
            1,
            None,
            TaskStatus.PAUSED,
            "9 of 10\nFix that, then resume the job",
        ),
    ],
)
def test_an_end_and_what_follows(
    run: dict[str, Any], code: int, wanted: Any, status: TaskStatus | None, reason: str
) -> None:
    outcome = classify_exit(run, Exit(code, wanted, PLENTY))
    assert getattr(outcome, "status", None) is status
    assert isinstance(outcome, Restart) == (status is None)
    assert reason in (outcome.reason or "")


def test_what_is_wrong_keeps_its_code_and_its_key() -> None:
    run = {"state": "failed", "code": "invalid_config", "param": "train.batch_size", "message": "no"}
    outcome = classify_exit(run, Exit(1, None, PLENTY))
    assert isinstance(outcome, Settled)
    assert (outcome.code, outcome.param) == ("invalid_config", "train.batch_size")


def test_a_process_that_could_not_even_say_that_the_disk_is_full() -> None:
    outcome = classify_exit({"state": "running"}, Exit(1, None, 2**20))
    assert isinstance(outcome, Settled)
    assert (outcome.status, outcome.code) == (TaskStatus.PAUSED, "disk_full")
    assert outcome.reason == "the disk is full: 1.0 MiB are free; free some space, then resume the job"


def test_a_process_that_cannot_be_started_is_tried_again_unless_the_disk_is_full() -> None:
    full = cannot_start(OSError(errno.ENOSPC, "No space left on device", "runs/raw_output.log"))
    assert isinstance(full, Settled)
    assert (full.status, full.code) == (TaskStatus.PAUSED, "disk_full")
    assert "raw_output.log" in (full.reason or "")
    assert isinstance(cannot_start(OSError(errno.EAGAIN, "no more processes")), Restart)


def test_a_pause_that_nobody_requested_and_no_server_saw_is_over_at_once() -> None:
    ended = Exit(UNKNOWN_EXIT, None, PLENTY, paused_alone=True)
    assert classify_exit({"state": "paused"}, ended) == Restart(counted=False)
