"""The kinds of tasks. A new one is a class, an entry here, and a command of the worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from strop.jobs.checking import Checking
from strop.jobs.evaluating import Evaluating
from strop.jobs.kind import Kind, Tools
from strop.jobs.short import Lengths, Trial
from strop.jobs.training import Training

KINDS: Mapping[str, Callable[[Tools], Kind]] = {
    "validation": Checking,
    "evaluation": Evaluating,
    "training": Training,
    "trial": Trial,
    "lengths": Lengths,
}
"""By the column `kind` of the table `tasks`."""


def make_kinds(tools: Tools) -> dict[str, Kind]:
    """Create one instance of each kind."""
    return {name: make(tools) for name, make in KINDS.items()}
