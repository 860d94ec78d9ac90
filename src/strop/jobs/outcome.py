"""The outcome of a training process for its job. Pure: a table of cases, from top to bottom."""

from __future__ import annotations

import errno
import signal
from collections.abc import Mapping

from strop.jobs.kind import Exit, Outcome, Restart, Settled
from strop.jobs.launcher import UNKNOWN_EXIT
from strop.jobs.task import TaskStatus
from strop.store.rundir import FailureCode, RunState
from strop.types import Json

LITTLE_SPACE = 8 * 2**20
"""Bytes. With less a status cannot be counted on to have been written."""

# Failures with a cause outside the run: it can resume once that is fixed.
_FIXABLE = frozenset({FailureCode.OUT_OF_MEMORY, FailureCode.DISK_FULL, "too_many_failed_groups"})


def classify_exit(run: Mapping[str, Json], ended: Exit) -> Outcome:
    """The outcome, from the run's status.json, how the process ended, and what a client requested."""
    state, asked = run.get("state"), ended.requested
    if asked == "cancel":
        return Settled(TaskStatus.CANCELLED)
    if state == RunState.SUCCEEDED:
        return Settled(TaskStatus.SUCCEEDED)
    if state == RunState.FAILED:
        return _failed(run)
    if asked == "pause":
        saved = "" if state == RunState.PAUSED else "; it resumes from the newest checkpoint"
        return Settled(TaskStatus.PAUSED, f"paused after step {run.get('step')} on request{saved}")
    if state == RunState.PAUSED and ended.paused_alone:
        return Restart(counted=False)
    if state == RunState.PAUSED:
        reason = "its process received SIGTERM from outside; resume the job to continue"
        return Settled(TaskStatus.PAUSED, reason)
    if ended.free_bytes < LITTLE_SPACE:
        reason = f"the disk is full: {ended.free_bytes / 2**20:.1f} MiB are free; free some space, then resume the job"
        return Settled(TaskStatus.PAUSED, reason, FailureCode.DISK_FULL)
    return _died(ended.code)


def cannot_start(error: OSError) -> Outcome:
    """The outcome if the process could not be started or its folder not be prepared."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        reason = f"the disk is full: {error}; free some space, then resume the job"
        return Settled(TaskStatus.PAUSED, reason, FailureCode.DISK_FULL)
    return Restart(f"no process could be started: {error}", FailureCode.UNEXPECTED)


def _failed(run: Mapping[str, Json]) -> Outcome:
    code, message = run.get("code"), str(run.get("message"))
    if code in _FIXABLE:
        advice = "" if "resume the job" in message else "\nFix that, then resume the job"
        return Settled(TaskStatus.PAUSED, message + advice, code)
    if code in (None, FailureCode.UNEXPECTED):
        return Restart(message, FailureCode.UNEXPECTED)
    return Settled(TaskStatus.FAILED, message, code, run.get("param"))


def _died(exit_code: int) -> Outcome:
    """The process wrote no final status."""
    if exit_code == -signal.SIGKILL:
        reason = (
            "the training process was killed (SIGKILL), as the system does when memory runs out; "
            "if so, lower train.micro_batch_tokens or sampling.max_concurrent"
        )
        return Restart(reason, FailureCode.OUT_OF_MEMORY)
    if exit_code == UNKNOWN_EXIT:
        how = "ended while no server watched it"
    elif exit_code < 0:
        how = f"was ended by {signal.Signals(-exit_code).name}"
    else:
        how = f"ended with exit code {exit_code}"
    return Restart(f"the training process {how}; its last output is in raw_output.log", FailureCode.UNEXPECTED)
