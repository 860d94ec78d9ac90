"""What an experiment page is about: a job, or a run that was imported."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from strop.services import runs
from strop.services.runs import Experiment
from strop.web.context import services


def _nowhere(name: str) -> None:
    """Until there are tabs to open."""


class Subject:
    """An experiment as it was when it was last read, for all parts of its page."""

    def __init__(self, name: str, newest: Experiment) -> None:
        self._name = name
        self.newest = newest
        self.open_tab: Callable[[str], object] = _nowhere
        """Shows another tab of the page."""

    @classmethod
    async def find(cls, name: str) -> Subject:
        """By the id of a job or of a run. NotFound for neither."""
        return cls(name, await runs.find(services(), name))

    async def refresh(self) -> Experiment:
        """Read it again. NotFound where it was deleted."""
        self.newest = await runs.find(services(), self._name)
        return self.newest

    @property
    def run_id(self) -> str:
        """Empty before the run exists."""
        return self.newest.run_id or ""

    @property
    def name(self) -> str:
        """For people."""
        return self.newest.name

    @property
    def active(self) -> bool:
        """Whether new steps may come."""
        return self.newest.active


Build = Callable[[Subject, Any], Awaitable[None]]
"""Draws a tab; the second is the address of the page."""
