"""What a server does to the run folder of a job while no process trains it."""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import replace

from strop.config import anchored, dump_config
from strop.errors import RunError, StropError
from strop.jobs.job import Job
from strop.jobs.outcome import Outcome, cannot_start
from strop.jobs.states import JobStatus
from strop.store.datafolder import DataFolder
from strop.store.files import write_atomic
from strop.store.rundir import RunDir, RunState

# A run has no state for a job that was cancelled: `strop resume` can go on with it.
_STATES = {
    JobStatus.PAUSED: RunState.PAUSED,
    JobStatus.CANCELLED: RunState.PAUSED,
    JobStatus.FAILED: RunState.FAILED,
}


def prepare_run(folder: DataFolder, job: Job) -> Outcome | None:
    """Make the run folder of a job, or put out of date what its status says of an earlier attempt.

    Comes before the job is said to be running: what the status says after that is about this
    attempt. Returns what becomes of the job where it fails.
    """
    run = RunDir(folder.found(job.folder))
    try:
        if run.config_file.is_file():
            if not run.locked():
                run.set_status(RunState.STARTING, phase="queued")
        elif job.started_at is not None:
            raise RunError(f"its run folder {run.path} is gone; clone the job to start over")
        else:
            shutil.rmtree(run.path, ignore_errors=True)  # what a kill in the middle of this left
            RunDir.create(run.path, anchored(job.config, folder.path))
    except StropError as error:
        return Outcome(JobStatus.FAILED, error.message, error.code, error.param)
    except OSError as error:
        outcome = cannot_start(error)
        return outcome if outcome.status else replace(outcome, status=JobStatus.FAILED)
    return None


def write_config(run: RunDir, folder: DataFolder, job: Job) -> None:
    """The configuration of the job rules: it may have been changed, or the data folder moved."""
    text = dump_config(anchored(job.config, folder.path))
    if run.config_file.read_text(encoding="utf-8") != text:
        write_atomic(run.config_file, text)


def close_run(run: RunDir, outcome: Outcome) -> bool:
    """Let the status of a run whose process was killed not say for ever that it is running."""
    status = run.status() if run.config_file.is_file() else {}
    state = _STATES.get(outcome.status) if outcome.status else None
    if state is None or not RunState(status.get("state", state)).active or run.locked():
        return False
    message = outcome.reason or f"the job was {outcome.status}"
    with suppress(OSError):  # the disk may be full
        run.set_status(state, message=message, code=outcome.code, param=outcome.param)
        return True
    return False
