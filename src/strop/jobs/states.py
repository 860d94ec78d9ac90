"""States of a running task in a supervisor, and their time limits."""

from __future__ import annotations

from dataclasses import dataclass

from strop.jobs.kind import Outcome
from strop.jobs.launcher import Process
from strop.jobs.task import Action


@dataclass(frozen=True)
class Limits:
    """Time limits and retries of a supervisor. Times in seconds."""

    restarts: int = 3
    """Maximum number of automatic restarts in a row without progress."""
    backoff_s: float = 5.0
    """Delay before the first restart; it doubles for each further one."""
    longest_backoff_s: float = 300.0
    grace_s: float = 30.0
    """Time for a cancelled process to exit."""
    stalled_s: float = 1800.0
    """Time without output after which a process is ended; 0 disables this."""
    lease_s: float = 30.0
    """Time after which a lease expires if it is not renewed."""
    interval_s: float = 0.25
    """Time between two rounds."""


@dataclass(frozen=True)
class Starting:
    """A process to start at `due`, by the monotonic clock."""

    due: float


@dataclass(frozen=True)
class Running:
    """A process works on the task."""

    process: Process
    since: float
    written: float
    """Modification time of its newest file."""
    moved_at: float
    """Time of the last change of `written`, by the monotonic clock."""
    looked_at: float
    """Time of the last check of `written`."""


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
