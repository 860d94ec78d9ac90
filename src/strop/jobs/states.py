"""States of a running task in a supervisor, and their time limits."""

from __future__ import annotations

from dataclasses import dataclass

from strop.jobs.kind import Outcome
from strop.jobs.launcher import Process
from strop.jobs.task import Action


@dataclass(frozen=True)
class Limits:
    """How patient a supervisor is. Times in seconds."""

    restarts: int = 3
    """Automatic ones in a row in which the task did not get on."""
    backoff_s: float = 5.0
    """Before the first of them; each further one waits twice as long."""
    longest_backoff_s: float = 300.0
    grace_s: float = 30.0
    """For a cancelled process to end by itself."""
    stalled_s: float = 1800.0
    """A process that writes nothing for so long is ended; 0 means never."""
    lease_s: float = 30.0
    """A lease that is not renewed for so long is dead."""
    interval_s: float = 0.25
    """Between two looks at the tasks."""


@dataclass(frozen=True)
class Starting:
    """A process is to be started, once it is `due` by the monotonic clock."""

    due: float


@dataclass(frozen=True)
class Running:
    """A process works on the task."""

    process: Process
    since: float
    written: float
    """When the newest of its files was written."""
    moved_at: float
    """When that last changed, by the monotonic clock."""
    looked_at: float
    """When that was last looked at."""


@dataclass(frozen=True)
class Stopping:
    """The process was asked to end."""

    process: Process
    action: Action
    since: float


@dataclass(frozen=True)
class Killed:
    """The process was ended by the supervisor, which knows what that means."""

    process: Process
    outcome: Outcome


@dataclass(frozen=True)
class Ended:
    """The process has ended, which is not written down yet."""

    code: int
    outcome: Outcome | None = None
    """What is known without asking what handles the task."""


State = Starting | Running | Stopping | Killed | Ended
