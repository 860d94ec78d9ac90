"""One running task of a supervisor: starts, follows, stops and restarts its process.

`tick` is called repeatedly and never waits. It writes to the database with the task's token, and
acts on processes only after raising the folder's fence to that token.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from strop.errors import StropError, Unavailable
from strop.jobs.kind import Change, Exit, Handler, Kind, Outcome, Restart, Settled, failed
from strop.jobs.launcher import UNKNOWN_EXIT, Launcher, Process, Unreachable
from strop.jobs.leases import Leases
from strop.jobs.outcome import cannot_start
from strop.jobs.states import Ended, Killed, Limits, Running, Starting, State, Stopping
from strop.jobs.task import Action, NewEvent, Task, TaskStatus
from strop.store.rundir import FailureCode, RunState
from strop.store.taskdir import TaskDir

_LOOK_AGAIN_S = 5.0
"""Seconds between two looks at a task that a process out of reach works on."""


@dataclass(frozen=True)
class Seat:
    """Shared state of all tasks of one supervisor."""

    leases: Leases
    limits: Limits
    monotonic: Callable[[], float]
    data: Path
    """The data folder."""


class Work:
    """A task that is running, or about to."""

    def __init__(self, seat: Seat, launcher: Launcher, handler: Handler, task: Task) -> None:
        """`task` is claimed. See `begin` and `take_over`."""
        self.task = task
        self.handler = handler
        self._seat = seat
        self._launcher = launcher
        self._state: State = Starting(seat.monotonic())
        self._paused_alone = False
        """Paused before this supervisor started, without a request."""

    @classmethod
    def begin(cls, seat: Seat, kind: Kind, task: Task) -> Work | None:
        """Take a task from the queue; None if it was changed or taken in between."""
        handler = kind.open(task)
        fault = _prepare(handler)
        noun = "Job" if task.kind == "training" else task.kind.capitalize()
        events = [NewEvent(f"{noun} started" if task.started_at is None else f"{noun} goes on")]
        values = {"status": TaskStatus.RUNNING, "reason": None, "pid": None, "pid_started_at": None}
        claimed = seat.leases.claim(task, events, fence=handler.folder.fence(), **values)
        if claimed is None:
            return None
        work = cls(seat, kind.launcher, handler, claimed)
        if fault:
            work._settle(fault)
        return work

    @classmethod
    def take_over(cls, seat: Seat, kind: Kind, task: Task) -> Work | None:
        """Continue a running task of another supervisor, or of this one before its restart.

        A living process is adopted. How a dead one ended is read from the folder.
        """
        handler = kind.open(task)
        claimed = seat.leases.claim(task, fence=handler.folder.fence())
        if claimed is None:
            return None
        work = cls(seat, kind.launcher, handler, claimed)
        if not handler.prepared:
            if fault := _prepare(handler):
                work._settle(fault)
            return work
        work._paused_alone = handler.folder.status().get("state") == RunState.PAUSED
        if work._adopt_living() or work._paused_alone:
            return work
        # No process with an older token can start from here on, but one may have just started.
        handler.folder.raise_fence(claimed.token)
        state = handler.folder.status().get("state", RunState.STARTING)
        never_started = claimed.pid is None and state == RunState.STARTING
        if not work._adopt_living() and not never_started:
            work._state = Ended(UNKNOWN_EXIT)
        return work

    @property
    def running(self) -> bool:
        """Whether the task is not settled yet."""
        return self.task.status is TaskStatus.RUNNING

    def tick(self, task: Task) -> None:
        """Do what is to be done now. `task` is the row as it is at this moment.

        Raises LeaseLost, RequestChanged, and whatever a full disk or a dead database makes of it:
        but for the first, the next tick tries again.
        """
        self.task = task
        if isinstance(self._state, Running | Stopping | Killed):
            self._watch(self._state)
        match self._state:
            case Ended(code, outcome):
                self._conclude(code, outcome)
            case Starting() if task.requested:
                self._conclude(UNKNOWN_EXIT, None)
            case Starting(due) if self._seat.monotonic() >= due:
                self._start()

    def end_process(self) -> None:
        """Ask the process to save its work and end, if there is one."""
        if isinstance(self._state, Running | Stopping):
            self._launcher.stop(self._state.process, now=False)

    def _watch(self, state: Running | Stopping | Killed) -> None:
        """Check the process: read its output, whether it lives, and whether it should."""
        self._record(state.process)
        code = self._launcher.poll(state.process)
        self._follow()
        if code is not None:
            self._state = Ended(code, state.outcome if isinstance(state, Killed) else None)
        elif isinstance(state, Killed):
            self._launcher.stop(state.process, now=True)
        elif self.task.requested:
            self._stop(state, self.task.requested)
        elif isinstance(state, Running):
            self._check_progress(state)

    def _stop(self, state: Running | Stopping, action: Action) -> None:
        """Request a stop once. A cancelled process that takes too long is killed; saved files are always complete."""
        now = self._seat.monotonic()
        if isinstance(state, Running):
            self._launcher.stop(state.process, now=False)
            self._state = Stopping(state.process, action, now)
        elif state.action != action:
            self._state = Stopping(state.process, action, now)
        elif action == "cancel" and now - state.since > self._seat.limits.grace_s:
            self._launcher.stop(state.process, now=True)

    def _check_progress(self, state: Running) -> None:
        """End a process that exceeds its time limit or has written nothing for too long."""
        now = self._seat.monotonic()
        limit, stalled_s = self.handler.time_limit_s, self._seat.limits.stalled_s
        if limit is not None and now - state.since > limit:
            self._kill(state, Settled(TaskStatus.FAILED, f"not done within {limit:g} s", "timeout"))
            return
        if not stalled_s or now - state.looked_at < stalled_s / 50:
            return
        written = newest_write(self.handler.folder)
        self._state = replace(state, looked_at=now)
        if written != state.written:
            self._state = replace(state, written=written, moved_at=now, looked_at=now)
        elif now - state.moved_at > stalled_s:
            reason = f"its process made no progress for {stalled_s / 60:g} minutes and was ended"
            self._kill(state, Restart(reason, FailureCode.UNEXPECTED))

    def _kill(self, state: Running, outcome: Outcome) -> None:
        self._launcher.stop(state.process, now=True)
        self._state = Killed(state.process, outcome)

    def _start(self) -> None:
        """Start a process, unless one works on the task already."""
        try:
            self.handler.folder.raise_fence(self.task.token)
            if self._adopt_living():
                return
            environment = self.handler.environment()
            if environment is None:
                return  # the next tick asks again
            process = self._launcher.launch(self.handler.folder.path, environment, self.task.token)
        except Unavailable as error:
            self._wait(self._seat.limits.backoff_s, error.message)
        except StropError as error:
            self._settle(failed(error))
        except OSError as error:
            self._apply(cannot_start(error))
        else:
            self._adopt(process)

    def _adopt_living(self) -> bool:
        """Adopt a process that works on the task or was started for it; False if there is none."""
        pid, started_at = self.task.pid, self.task.pid_started_at
        known = Process(pid, started_at) if pid is not None and started_at is not None else None
        try:
            process = self._launcher.find(self.handler.folder.path, known)
        except Unreachable as error:
            self._wait(_LOOK_AGAIN_S, error.message)
            return True
        if process is not None:
            self._adopt(process)
        return process is not None

    def _wait(self, delay_s: float, reason: str) -> None:
        self._state = Starting(self._seat.monotonic() + delay_s)
        if self.task.reason != reason:
            self.task = self._seat.leases.change(self.task, reason=reason)

    def _adopt(self, process: Process) -> None:
        now = self._seat.monotonic()
        self._state = Running(process, now, newest_write(self.handler.folder), now, now)
        self._record(process)

    def _record(self, process: Process) -> None:
        """Write down which process it is. Until that is done, a new server finds it by the folder's lock."""
        if self.task.pid == process.pid and self.task.pid_started_at == process.started_at:
            return
        values: dict[str, Any] = {"pid": process.pid, "pid_started_at": process.started_at}
        started_at = self.task.started_at or self._seat.leases.now()
        reason = None if self.task.restarts == 0 else self.task.reason
        self.task = self._seat.leases.change(self.task, **values, started_at=started_at, reason=reason)

    def _follow(self) -> None:
        """Ingest the new output of the process."""
        for change in self.handler.follow():
            self._write(change)

    def _write(self, change: Change) -> None:
        if change.events or change.values or change.also:
            self.task = self._seat.leases.change(self.task, change.events, change.also, change.durable, **change.values)

    def _conclude(self, code: int, known: Outcome | None) -> None:
        """Handle a task without a process."""
        self._follow()
        free = shutil.disk_usage(self._seat.data).free
        ended = Exit(code, self.task.requested, free, self._paused_alone)
        self._apply(known if known and not self.task.requested else self.handler.conclude(ended))
        self._paused_alone = False

    def _apply(self, outcome: Outcome) -> None:
        self._settle(outcome) if isinstance(outcome, Settled) else self._restart(outcome)

    def _restart(self, outcome: Restart) -> None:
        """Start again, after a while if it is counted, or give up."""
        limits, again = self._seat.limits, self.task.restarts + 1
        if not outcome.counted:
            self.task = self._seat.leases.change(self.task, reason=outcome.reason, pid=None, pid_started_at=None)
            self._state = Starting(self._seat.monotonic())
            return
        if again > limits.restarts:
            progress = " without a new checkpoint" if self.task.kind == "training" else ""
            reason = f"{outcome.reason}\nGiven up after {limits.restarts} restarts{progress}"
            self._settle(Settled(TaskStatus.FAILED, reason, outcome.code))
            return
        delay = min(limits.backoff_s * 2 ** (again - 1), limits.longest_backoff_s)
        reason = f"{outcome.reason} (restart {again} of {limits.restarts} in {delay:g} s)"
        values: dict[str, Any] = {"restarts": again, "reason": reason, "pid": None, "pid_started_at": None}
        self.task = self._seat.leases.change(self.task, [NewEvent(reason, level="warn")], **values)
        self._state = Starting(self._seat.monotonic() + delay)

    def _settle(self, outcome: Settled) -> None:
        """Write down how it ended, first in its folder."""
        change = self.handler.finish(outcome)
        values = {**change.values, "reason": outcome.reason, "pid": None, "pid_started_at": None}
        if outcome.code:
            values |= {"error_code": outcome.code, "error_param": outcome.param}
        self.task = self._seat.leases.settle(self.task, outcome.status, change.events, change.also, **values)


def _prepare(handler: Handler) -> Settled | None:
    """Have the folder made ready; what becomes of the task where that fails."""
    try:
        handler.prepare()
    except StropError as error:
        return failed(error)
    except OSError as error:
        outcome = cannot_start(error)
        if isinstance(outcome, Restart):
            return Settled(TaskStatus.FAILED, outcome.reason, outcome.code)
        return outcome
    return None


def newest_write(folder: TaskDir) -> float:
    """When the newest file of a folder was written, or a file was added to a folder in it."""
    times = [0.0]
    for path in folder.path.glob("*"):
        with suppress(FileNotFoundError):
            times.append(path.stat().st_mtime)
    return max(times)
