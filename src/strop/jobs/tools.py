"""What a runner works with: the seams to the rest of the server, and how patient it is."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from strop.jobs.environment import needed_secrets, public_environment, trainer_secrets
from strop.jobs.job import Job
from strop.jobs.launcher import Launcher
from strop.jobs.leases import Leases
from strop.store.datafolder import DataFolder


class RunIngester(Protocol):
    """Takes run folders into the database: see `store.ingest`."""

    def import_run(self, path: Path) -> str:
        """Id of the run, known or not."""

    def refresh(self, run_id: str) -> bool:
        """Take in what is new; whether something was."""


class Secrets(Protocol):
    """The secrets of the server: see `store.secrets`."""

    def names(self) -> Sequence[Any]:
        """Every secret, each with its `name`."""

    def reveal(self, names: Iterable[str]) -> dict[str, str]:
        """Their values."""


@dataclass(frozen=True)
class Limits:
    """How patient a runner is. Times in seconds."""

    restarts: int = 3
    """Automatic ones in a row without a new checkpoint."""
    backoff_s: float = 5.0
    """Before the first of them; each further one waits twice as long."""
    longest_backoff_s: float = 300.0
    grace_s: float = 30.0
    """For a cancelled process to end by itself."""
    lease_s: float = 30.0
    """A lease that is not renewed for so long is dead."""
    interval_s: float = 0.25
    """Between two looks at the jobs."""


@dataclass(frozen=True)
class Tools:
    """What every piece of work uses."""

    leases: Leases
    launcher: Launcher
    ingester: RunIngester
    secrets: Secrets
    folder: DataFolder
    limits: Limits
    monotonic: Callable[[], float] = time.monotonic

    def environment(self) -> dict[str, str]:
        """The server's variables without its secrets."""
        return public_environment(os.environ, self._secret_names())

    def environment_for(self, job: Job) -> dict[str, str]:
        """And with those that the job needs: its rewards, its trackers, the model hub. Raises RewardError,
        DatabaseError."""
        public, stored = self.environment(), self._secret_names()
        needed = needed_secrets(job.config.rewards, public, stored)
        needed += trainer_secrets(job.config.recorders, stored)
        return {**public, **self.secrets.reveal(dict.fromkeys(needed))}

    def _secret_names(self) -> frozenset[str]:
        return frozenset(secret.name for secret in self.secrets.names())
