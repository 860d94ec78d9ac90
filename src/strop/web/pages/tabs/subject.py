"""What an experiment page is about: a job, or a run that was imported."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from strop.api.services import Services
from strop.errors import NotFound
from strop.jobs.job import Job
from strop.store import queries
from strop.store.rundir import RunState

ACTIVE = (RunState.STARTING, RunState.RUNNING)


def _nowhere(name: str) -> None:
    """Until there are tabs to open."""


@dataclass
class Subject:
    """A job with its run; one of them may be missing."""

    services: Services
    job: Job | None
    run_id: str | None
    run: Mapping[str, Any] = field(default_factory=dict)
    """As `queries.run` gives it; empty before the run exists."""
    open_tab: Callable[[str], object] = _nowhere
    """Shows another tab of the page."""

    @classmethod
    def find(cls, services: Services, name: str) -> Subject:
        """By the id of a job or of a run. NotFound for neither."""
        if name.startswith("run_"):
            return cls(services, None, name).refresh()
        return cls(services, services.jobs.get(name), None).refresh()

    def refresh(self) -> Subject:
        """Read again what the database says."""
        if self.job is not None:
            self.job = self.services.jobs.get(self.job.id)
            self.run_id = self.job.run_id
        if self.run_id is not None:
            try:
                with self.services.database.read() as connection:
                    self.run = queries.run(connection, self.run_id)
            except NotFound:
                if self.job is None:
                    raise
                self.run_id, self.run = None, {}  # its folder is made, and not yet taken in
        return self

    @property
    def name(self) -> str:
        """For people."""
        return self.job.name if self.job else str(self.run["name"])

    @property
    def state(self) -> str:
        """Of the job, else of the run."""
        return str(self.job.status) if self.job else str(self.run["state"])

    @property
    def active(self) -> bool:
        """Whether new steps may come."""
        return self.state in (*ACTIVE, "queued", "validating_files")
