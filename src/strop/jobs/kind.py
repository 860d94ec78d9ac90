"""The protocols of a kind of task, for supervisors. `kinds.KINDS` lists them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from strop.errors import StropError
from strop.jobs.launcher import Launcher
from strop.jobs.leases import Write
from strop.jobs.task import Action, NewEvent, Task, TaskStatus
from strop.store.datafolder import DataFolder
from strop.store.db import Database
from strop.store.taskdir import TaskDir


@dataclass(frozen=True)
class Exit:
    """The exit of a process."""

    code: int
    """Exit status, negative for a signal, or `launcher.UNKNOWN_EXIT`."""
    requested: Action | None
    """The action that a client requested."""
    free_bytes: int
    """On the disk of the data folder."""
    paused_alone: bool = False
    """It had paused before this server looked: the machine was shut down, say."""


@dataclass(frozen=True)
class Settled:
    """A task is finished, or paused until it is resumed."""

    status: TaskStatus
    reason: str | None = None
    code: str | None = None
    param: str | None = None


@dataclass(frozen=True)
class Restart:
    """The process is to be started again; if `counted`, after a while, and only if that was not done too often."""

    reason: str | None = None
    code: str | None = None
    counted: bool = True


Outcome = Settled | Restart


def failed(error: StropError) -> Settled:
    """The outcome for invalid user input."""
    return Settled(TaskStatus.FAILED, error.message, error.code, error.param)


@dataclass(frozen=True)
class Change:
    """Changes to a task, written in one transaction."""

    events: Sequence[NewEvent] = ()
    values: Mapping[str, Any] = field(default_factory=dict)
    """Columns of the table `tasks`."""
    also: Write | None = None
    """Writes columns that only this kind has."""
    durable: bool = True
    """False for data that can be read from the folder again."""


class Handler(Protocol):
    """The kind-specific handling of one task."""

    @property
    def folder(self) -> TaskDir:
        """The folder of its process."""

    @property
    def ends_with_server(self) -> bool:
        """Whether its process depends on this server and stops with it."""

    @property
    def time_limit_s(self) -> float | None:
        """Seconds after which its process is ended."""

    @property
    def prepared(self) -> bool:
        """Whether the folder was prepared before."""

    def prepare(self) -> None:
        """Prepare the folder before the task is marked as running, so that its files describe this attempt.

        StropError where the task cannot be done, OSError where the disk is full or the folder not writable.
        """

    def environment(self) -> dict[str, str] | None:
        """The environment of the next process, which is started at once; None to be asked again soon.

        Unavailable to be asked again later; another StropError where the task cannot be done.
        """

    def follow(self) -> Iterator[Change]:
        """New output of the process; each change is stored before the next is requested."""

    def conclude(self, ended: Exit) -> Outcome:
        """The outcome of the task after the exit of its process."""

    def finish(self, outcome: Settled) -> Change:
        """Leave the folder as the outcome has it; what is written together with the outcome."""


class Kind(Protocol):
    """A kind of task: the launcher of its processes, and a handler for each task."""

    @property
    def launcher(self) -> Launcher:
        """Launcher of its processes."""

    def open(self, task: Task) -> Handler:
        """Create the handler of a task."""


class RunIngester(Protocol):
    """Ingests run folders into the database: see `store.ingest`."""

    def import_run(self, path: Path) -> str:
        """Id of the run, known or not."""

    def refresh(self, run_id: str) -> bool:
        """Ingest new data; return whether there was any."""


class Secrets(Protocol):
    """The secrets of the server: see `store.secrets`."""

    def names(self) -> Sequence[Any]:
        """Every secret, each with its `name`."""

    def reveal(self, names: Iterable[str]) -> dict[str, str]:
        """Their values."""


@dataclass(frozen=True)
class Tools:
    """The parts of the server that kinds of tasks work with."""

    database: Database
    folder: DataFolder
    secrets: Secrets
    ingester: RunIngester
    ready: Callable[[str], bool] = lambda name: True
    """Request the load of a deployment that a task needs; False until it is loaded."""


def read_output(folder: TaskDir, limit: int = 2000) -> str:
    """The last lines of a process's output."""
    try:
        with open(folder.raw_output, "rb") as file:
            file.seek(max(0, file.seek(0, 2) - limit))
            return file.read().decode("utf-8", "replace").strip()
    except FileNotFoundError:
        return ""
