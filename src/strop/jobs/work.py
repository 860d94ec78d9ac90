"""One running job in the hands of a runner: its process is started, followed, stopped, replaced.

`tick` is called again and again and never waits. What it learns goes to the database with the
job's token; what it does to processes comes after the run's fence was raised to that token.
"""

from __future__ import annotations

import logging
import shutil
from typing import Any

from strop.errors import StropError
from strop.jobs.folder import close_run, prepare_run, write_config
from strop.jobs.following import RunFollower
from strop.jobs.job import Job, NewEvent
from strop.jobs.launcher import UNKNOWN_EXIT, Process, Unreachable
from strop.jobs.outcome import Outcome, cannot_start, judge
from strop.jobs.reports import checkpoint_event, ending_events, step_event
from strop.jobs.states import JobStatus
from strop.jobs.tools import Tools
from strop.store.rundir import RunDir, RunState

log = logging.getLogger(__name__)

_LOOK_AGAIN_S = 5.0
"""Seconds between two looks at a run that a process out of reach is training."""


class Work:
    """A job that is running, or about to."""

    def __init__(self, tools: Tools, job: Job) -> None:
        """`job` is claimed. See `begin` and `take_over`."""
        self.job = job
        self._tools = tools
        self._run = RunDir(tools.folder.found(job.folder))
        self._follower = RunFollower(self._run, *tools.leases.told(job))
        self._process: Process | None = None
        self._recorded = False
        self._exit_code: int | None = None
        """Of a process that has ended, until that was written down."""
        self._paused_unwatched = False
        """The machine was shut down, say, and nobody asked for a pause of the job."""
        self._start_at = tools.monotonic()
        self._asked: tuple[str, float] | None = None
        self._complaint = ""

    @classmethod
    def begin(cls, tools: Tools, job: Job) -> Work | None:
        """Take a job of the queue; None when it was changed or taken in between."""
        fault = prepare_run(tools.folder, job)
        told = [NewEvent("Job started" if job.started_at is None else "Job goes on")]
        values = {"status": JobStatus.RUNNING, "pid": None, "pid_started_at": None}
        claimed = tools.leases.claim(job, told, fence=_fence(tools, job), **values)
        if claimed is None:
            return None
        work = cls(tools, claimed)
        if fault:
            work._settle(fault)
        return work

    @classmethod
    def take_over(cls, tools: Tools, job: Job) -> Work | None:
        """Go on with a running job of another runner, or of this one before it was started anew.

        A living process is adopted. How a dead one ended is read from the run folder.
        """
        claimed = tools.leases.claim(job, fence=_fence(tools, job))
        if claimed is None:
            return None
        work = cls(tools, claimed)
        if not work._run.config_file.is_file():
            if fault := prepare_run(tools.folder, claimed):
                work._settle(fault)
            return work
        work._paused_unwatched = work._run.status().get("state") == RunState.PAUSED
        if work._adopt_living() or work._paused_unwatched:
            return work
        # From here on none of an older token begins to train; but one may have begun just now.
        work._run.raise_fence(claimed.token)
        never_started = claimed.pid is None and work._run.status().get("state", RunState.STARTING) == RunState.STARTING
        if not work._adopt_living() and not never_started:
            work._exit_code = UNKNOWN_EXIT
        return work

    def tick(self, job: Job) -> bool:
        """Do what is to be done now; false once the job is settled. `job` is the row as it is now.

        Raises LeaseLost, WishChanged, and whatever a full disk or a dead database makes of it:
        but for the first, the next tick tries again.
        """
        self.job = job
        if self._process is not None and self._exit_code is None:
            self._record()
            self._exit_code = self._tools.launcher.poll(self._process)
            self._follow()
            if self._exit_code is None:
                self._stop_if_wanted(self._process)
        if self._exit_code is not None:
            self._conclude(self._exit_code)
        elif self._process is None and job.wanted:
            self._conclude(UNKNOWN_EXIT)
        elif self._process is None and self._tools.monotonic() >= self._start_at:
            self._start()
        return self.job.status is JobStatus.RUNNING

    def _start(self) -> None:
        """Start a process, unless one trains the run already."""
        tools = self._tools
        try:
            self._run.raise_fence(self.job.token)
            if self._adopt_living():
                return
            write_config(self._run, tools.folder, self.job)
            process = tools.launcher.launch(self._run.path, tools.environment_for(self.job), self.job.token)
        except StropError as error:
            self._settle(Outcome(JobStatus.FAILED, error.message, error.code, error.param))
        except OSError as error:
            outcome = cannot_start(error)
            self._settle(outcome) if outcome.status else self._retry(outcome)
        else:
            self._adopt(process)

    def _adopt_living(self) -> bool:
        """Take on a process that trains the run, or was started for that; false where there is none."""
        pid, started_at = self.job.pid, self.job.pid_started_at
        known = Process(pid, started_at) if pid is not None and started_at is not None else None
        try:
            process = self._tools.launcher.find(self._run.path, known)
        except Unreachable as error:
            self._start_at = self._tools.monotonic() + _LOOK_AGAIN_S
            self.job = self._tools.leases.change(self.job, reason=error.message)
            return True
        if process is not None:
            self._adopt(process)
        return process is not None

    def _adopt(self, process: Process) -> None:
        self._process, self._recorded, self._asked = process, False, None
        self._record()

    def _record(self) -> None:
        """Write down which process it is. Until that is done, a new server finds it by the run's lock."""
        if self._process is None or self._recorded:
            return
        started_at = self.job.started_at or self._tools.leases.now()
        values: dict[str, Any] = {
            "pid": self._process.pid,
            "pid_started_at": self._process.started_at,
            "started_at": started_at,
        }
        self.job = self._tools.leases.change(self.job, **values)
        self._recorded = True

    def _stop_if_wanted(self, process: Process) -> None:
        """Ask once. A cancelled process that takes too long is ended: its checkpoints are whole at any moment."""
        wanted, now = self.job.wanted, self._tools.monotonic()
        if wanted is None:
            return
        if self._asked is None:
            self._tools.launcher.stop(process, now=False)
        if self._asked is None or self._asked[0] != wanted:
            self._asked = wanted, now
        elif wanted == "cancel" and now - self._asked[1] > self._tools.limits.grace_s:
            self._tools.launcher.stop(process, now=True)

    def _follow(self) -> None:
        """Take in what the process has written since, and tell of it."""
        self._ingest()
        while news := self._follower.news():
            total = self._run.status().get("total_steps")
            told = [step_event(self.job, line, total) for line in news.steps]
            told += [checkpoint_event(self.job, entry) for entry in news.checkpoints]
            mended = bool(news.checkpoints and self.job.restarts)
            values: dict[str, Any] = {"restarts": 0, "reason": None} if mended else {}
            self.job = self._tools.leases.change(self.job, told, **values)
            self._follower.told(news)

    def _ingest(self) -> None:
        """Charts and rollouts come from the database's copy of the run: that it is late stops no job."""
        run_id, complaint = self.job.run_id, ""
        try:
            if run_id is None:
                run_id = self._tools.ingester.import_run(self._run.path)
            else:
                self._tools.ingester.refresh(run_id)
        except Exception as error:
            complaint = str(error)
            if complaint != self._complaint:  # not four times a second
                log.exception("job %s: its run could not be taken in", self.job.id)
        self._complaint = complaint
        if run_id != self.job.run_id:
            self.job = self._tools.leases.change(self.job, run_id=run_id)

    def _conclude(self, exit_code: int) -> None:
        """No process is at work: see what that means."""
        if self._run.config_file.is_file():
            self._follow()
        status = self._run.status()
        outcome = judge(status, exit_code, self.job.wanted, shutil.disk_usage(self._tools.folder.path).free)
        if outcome.status is None:
            self._retry(outcome)
        elif not (self._paused_unwatched and status.get("state") == RunState.PAUSED and not self.job.wanted):
            self._settle(outcome)
        self._process, self._exit_code, self._paused_unwatched = None, None, False

    def _retry(self, outcome: Outcome) -> None:
        """Start again later, or give up."""
        limits, again = self._tools.limits, self.job.restarts + 1
        if again > limits.restarts:
            reason = f"{outcome.reason}\nGiven up after {limits.restarts} restarts without a new checkpoint"
            self._settle(Outcome(JobStatus.FAILED, reason, outcome.code))
            return
        delay = min(limits.backoff_s * 2 ** (again - 1), limits.longest_backoff_s)
        reason = f"{outcome.reason} (restart {again} of {limits.restarts} in {delay:g} s)"
        values = {"restarts": again, "reason": reason, "pid": None, "pid_started_at": None}
        self.job = self._tools.leases.change(self.job, [NewEvent(reason, level="warn")], **values)
        self._start_at = self._tools.monotonic() + delay

    def _settle(self, outcome: Outcome) -> None:
        """Write down how it ended, first in the run folder."""
        assert outcome.status is not None
        if close_run(self._run, outcome):
            self._ingest()
        values: dict[str, Any] = {"reason": outcome.reason, "pid": None, "pid_started_at": None}
        if outcome.code:
            values |= {"error_code": outcome.code, "error_param": outcome.param}
        if outcome.status is JobStatus.SUCCEEDED:
            values["fine_tuned_model"] = self.job.model_name
        self.job = self._tools.leases.settle(self.job, outcome.status, ending_events(self.job, outcome), **values)


def _fence(tools: Tools, job: Job) -> int:
    """Of its run folder: ahead of the database where that was brought back from a copy."""
    return RunDir(tools.folder.found(job.folder)).fence()
