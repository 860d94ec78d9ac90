"""What the end of a training process means for its job. Pure: a table of cases, top to bottom."""

from __future__ import annotations

import errno
import signal
from collections.abc import Mapping
from dataclasses import dataclass

from strop.jobs.job import Wanted
from strop.jobs.launcher import UNKNOWN_EXIT
from strop.jobs.states import JobStatus
from strop.store.rundir import FailureCode, RunState
from strop.types import Json

LITTLE_SPACE = 8 * 2**20
"""Bytes. With less a status cannot be counted on to have been written."""

# Failures that leave the run sound and go away once somebody has mended something outside of it.
_MENDABLE = frozenset({FailureCode.OUT_OF_MEMORY, FailureCode.DISK_FULL, "too_many_failed_groups"})


@dataclass(frozen=True)
class Outcome:
    """Where the job goes, and why."""

    status: JobStatus | None
    """None: the process is to be started again, if that was not done too often."""
    reason: str | None = None
    code: str | None = None
    param: str | None = None


def judge(run: Mapping[str, Json], exit_code: int, wanted: Wanted | None, free_bytes: int) -> Outcome:
    """The outcome, from the run's status.json, how the process ended, and what a client asked for."""
    state = run.get("state")
    if wanted == "cancel":
        return Outcome(JobStatus.CANCELLED)
    if state == RunState.SUCCEEDED:
        return Outcome(JobStatus.SUCCEEDED)
    if state == RunState.FAILED:
        return _failed(run)
    if wanted == "pause":
        step = run.get("step")
        saved = "" if state == RunState.PAUSED else "; it goes on from the newest checkpoint"
        return Outcome(JobStatus.PAUSED, f"paused after step {step} on request{saved}")
    if state == RunState.PAUSED:
        return Outcome(
            JobStatus.PAUSED, "its process was asked to stop from outside (SIGTERM); resume the job to go on"
        )
    if free_bytes < LITTLE_SPACE:
        reason = f"the disk is full: {free_bytes / 2**20:.1f} MiB are free; make room, then resume the job"
        return Outcome(JobStatus.PAUSED, reason, FailureCode.DISK_FULL)
    return _died(exit_code)


def cannot_start(error: OSError) -> Outcome:
    """The outcome where no process could be started, or its folder not be made ready."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        reason = f"the disk is full: {error}; make room, then resume the job"
        return Outcome(JobStatus.PAUSED, reason, FailureCode.DISK_FULL)
    return Outcome(None, f"no training process could be started: {error}", FailureCode.UNEXPECTED)


def _failed(run: Mapping[str, Json]) -> Outcome:
    code, message = run.get("code"), str(run.get("message"))
    if code in _MENDABLE:
        advice = "" if "resume the job" in message else "\nMend that, then resume the job"
        return Outcome(JobStatus.PAUSED, message + advice, code)
    if code in (None, FailureCode.UNEXPECTED):
        return Outcome(None, message, FailureCode.UNEXPECTED)
    return Outcome(JobStatus.FAILED, message, code, run.get("param"))


def _died(exit_code: int) -> Outcome:
    """It ended without a word."""
    if exit_code == -signal.SIGKILL:
        reason = (
            "the training process was killed (SIGKILL), as the system does when memory runs out; "
            "if so, lower train.micro_batch_tokens or sampling.max_concurrent"
        )
        return Outcome(None, reason, FailureCode.OUT_OF_MEMORY)
    if exit_code == UNKNOWN_EXIT:
        how = "ended while no server watched it"
    elif exit_code < 0:
        how = f"was ended by {signal.Signals(-exit_code).name}"
    else:
        how = f"ended with exit code {exit_code}"
    return Outcome(None, f"the training process {how}; its last output is in raw_output.log", FailureCode.UNEXPECTED)
