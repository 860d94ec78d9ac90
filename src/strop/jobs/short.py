"""Short tasks, whose result a client waits for: the kinds `trial` and `lengths`.

The folder of a short task has a spec.json when it is recorded; its process leaves a result.json.
"""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar

import sqlalchemy as sa
from sqlalchemy import RowMapping

from strop.config import RewardConfig
from strop.errors import ModelError, RewardError, StropError, Unavailable
from strop.jobs.environment import Environment
from strop.jobs.kind import Change, Exit, Outcome, Restart, Settled, Tools, read_output
from strop.jobs.launcher import UNKNOWN_EXIT, Launcher, LocalLauncher
from strop.jobs.queue import TaskQueue
from strop.jobs.task import Task, TaskStatus, to_task
from strop.store.datafolder import DataFolder
from strop.store.db import Database
from strop.store.files import write_json
from strop.store.ids import new_id
from strop.store.tables import tasks
from strop.store.taskdir import TaskDir, read_object
from strop.types import Json

SHORT = ("validation", "trial", "lengths")
"""Kinds whose folders are deleted soon after they end."""
_KEPT_S = 3600.0
_LOOK_S = 0.05
_GRACE_S = 10.0
"""For a process to start and to end."""


class SpecHandler:
    """A task that lives in its folder: the input in spec.json, the result in result.json."""

    ends_with_server = False

    def __init__(self, tools: Tools, task: Task, time_limit_s: float) -> None:
        self.folder = TaskDir(tools.folder.found(task.folder))
        self.time_limit_s: float | None = time_limit_s
        self._tools = tools

    @property
    def prepared(self) -> bool:
        """Whether the specification is written."""
        return self.folder.spec_file.is_file()

    def prepare(self) -> None:
        """Nothing: the folder was made when the task was created."""

    def environment(self) -> dict[str, str] | None:
        """The server's variables without its secrets."""
        return Environment(self._tools.secrets).public

    def follow(self) -> Iterator[Change]:
        """No changes before the result."""
        return iter(())

    def conclude(self, ended: Exit) -> Outcome:
        """As the result says."""
        if ended.requested == "cancel":
            return Settled(TaskStatus.CANCELLED)
        result = self.result()
        if "error" in result:
            return Settled(TaskStatus.FAILED, str(result["error"]))
        if result:
            return Settled(TaskStatus.SUCCEEDED)
        if ended.code == UNKNOWN_EXIT:
            return Restart("its process ended while no server watched it")
        last = read_output(self.folder).rpartition("\n")[2]
        return Settled(TaskStatus.FAILED, f"its process ended with exit code {ended.code}: {last or 'no reason given'}")

    def finish(self, outcome: Settled) -> Change:
        """Nothing more is written."""
        return Change()

    def result(self) -> dict[str, Json]:
        """What the process has left; empty before that."""
        return read_object(self.folder.path / "result.json")


class Lengths:
    """Counts the tokens of the prompts of a data file."""

    limit_s = 300.0

    def __init__(self, tools: Tools, launcher: Launcher | None = None) -> None:
        self.launcher = launcher or LocalLauncher((sys.executable, "-m", "strop.worker.lengths"))
        self._tools = tools

    def open(self, task: Task) -> SpecHandler:
        """The same for all of them."""
        return SpecHandler(self._tools, task, self.limit_s)


class Trial:
    """Scores completions with reward functions, before anything is trained with them."""

    def __init__(self, tools: Tools, launcher: Launcher | None = None) -> None:
        self.launcher = launcher or LocalLauncher((sys.executable, "-m", "strop.worker.trial"))
        self._tools = tools

    def open(self, task: Task) -> TrialHandler:
        """The time limit is the client's."""
        return TrialHandler(self._tools, task)


class TrialHandler(SpecHandler):
    """One trial while it runs."""

    def __init__(self, tools: Tools, task: Task) -> None:
        super().__init__(tools, task, 0.0)
        self._spec = self.folder.spec()
        self.time_limit_s = float(self._spec["seconds"]) + _GRACE_S

    def environment(self) -> dict[str, str] | None:
        """With the secrets that the rewards name. RewardError where there is no variable of a name."""
        variables = Environment(self._tools.secrets)
        rewards = [RewardConfig.model_validate(table) for table in self._spec["rewards"]]
        return variables.with_secrets(variables.of_rewards(rewards))


class ShortQueue(TaskQueue[Task]):
    """Tasks of one short kind, each created, awaited and deleted in one call."""

    patience_s: ClassVar[float]
    """Maximum time in the queue, in seconds."""
    busy: ClassVar[str]
    """Message for clients after that."""

    def __init__(self, database: Database, folder: DataFolder, clock: Callable[[], float] = time.time) -> None:
        """`clock` gives the times that people see."""
        super().__init__(database, clock)
        self._folder = folder
        self._closing = threading.Event()

    def close(self) -> None:
        """End all waiting, since the server ends: no thread of it may outlive that."""
        self._closing.set()

    def run(self, spec: Mapping[str, Json]) -> dict[str, Json]:
        """Run a process for `spec`, wait, and return its result.

        Blocks the calling thread. Unavailable where others take too long; `error` where it fails.
        """
        task_id = new_id("task_")
        path = self._folder.tasks / task_id
        path.mkdir(mode=0o700)
        write_json(TaskDir(path).spec_file, spec)
        with self.database.write() as connection:
            self._insert(connection, task_id, self._folder.stored(path), TaskStatus.QUEUED)
        try:
            self._wait(task_id)
            return read_object(path / "result.json")
        finally:
            self._forget(task_id)

    def error(self, task: Task) -> StropError:
        """Why a task has no result."""
        raise NotImplementedError

    def read(self, row: RowMapping) -> Task:
        """A row of the tasks table."""
        return to_task(row)

    def _wait(self, task_id: str) -> None:
        ends = time.monotonic() + self.patience_s
        while not (task := self.get(task_id)).status.finished:
            if task.status is TaskStatus.QUEUED and time.monotonic() > ends:
                raise Unavailable(self.busy, retry_after=10)
            if self._closing.wait(_LOOK_S):
                raise Unavailable("the server is stopping; try again when it runs")
        if task.status is not TaskStatus.SUCCEEDED:
            raise self.error(task)

    def _forget(self, task_id: str) -> None:
        """Remove a task that has ended; otherwise let it end, to be removed by `purge`."""
        task = self.get(task_id)
        if not task.status.finished:
            task = self.request(task_id, "cancel")
        if task.status.finished:
            _remove(self.database, self._folder, [task])


class TrialQueue(ShortQueue):
    """Trials of reward functions."""

    kind = "trial"
    noun = "trial"
    created = "Trial created"
    patience_s = 10.0
    busy = "other tests of rewards are running; try again in a moment"

    def error(self, task: Task) -> StropError:
        """A reward that cannot be loaded, or does not end."""
        return RewardError(f"{task.reason}", param=task.error_param or "rewards")


class LengthsQueue(ShortQueue):
    """Counts of the tokens of prompts."""

    kind = "lengths"
    noun = "count of prompts"
    created = "Count of prompts created"
    patience_s = 60.0
    busy = "the prompts of another file are being counted; try again in a moment"

    def error(self, task: Task) -> StropError:
        """A model without a tokenizer, say."""
        if task.error_code == "timeout":
            return Unavailable(f"the prompts were not counted within {Lengths.limit_s:g} s", retry_after=60)
        return ModelError(f"the prompts cannot be counted: {task.reason}", param="model")


def purge(database: Database, folder: DataFolder, now: float, kept_s: float = _KEPT_S) -> None:
    """Remove short tasks that have ended `kept_s` seconds before `now`, with their folders."""
    query = sa.select(tasks).where(tasks.c.kind.in_(SHORT), tasks.c.finished_at < now - kept_s)
    with database.read() as connection:
        old = [to_task(row) for row in connection.execute(query).mappings()]
    if old:
        _remove(database, folder, old)


def sweep(database: Database, folder: DataFolder) -> None:
    """Remove folders of short tasks that were never recorded, or whose job is deleted."""
    with database.read() as connection:
        known = {folder.found(stored) for stored in connection.scalars(sa.select(tasks.c.folder))}
    for path in folder.tasks.iterdir():
        if path not in known:
            shutil.rmtree(path, ignore_errors=True)


def _remove(database: Database, folder: DataFolder, old: list[Task]) -> None:
    with database.write() as connection:
        connection.execute(tasks.delete().where(tasks.c.seq.in_([task.seq for task in old])))
    for task in old:
        shutil.rmtree(folder.found(task.folder), ignore_errors=True)
