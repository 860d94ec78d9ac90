"""Evaluations: tasks that measure a model on rows, and their queue.

What an evaluation is to do lies in its folder, as spec.json; the process that does it writes
only there.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import RowMapping

from strop.errors import Conflict
from strop.jobs.queue import TaskQueue
from strop.jobs.task import Task, TaskStatus, last_place
from strop.store.datafolder import DataFolder
from strop.store.db import Database
from strop.store.evaldir import EvaluationDir
from strop.store.ids import new_id
from strop.store.queries.lookup import sendable
from strop.store.tables import evaluations, tasks
from strop.types import Json


@dataclass(frozen=True)
class NewEvaluation:
    """What a client asks for."""

    name: str
    model: str
    """For people."""
    spec: Mapping[str, Json]
    """See `evals.spec`; its paths are relative to a folder two levels below the data folder."""


@dataclass(frozen=True)
class Evaluation(Task):
    """An evaluation task at one moment.

    One that was asked to cancel is shown as cancelled at once, while its process is still being stopped.
    """

    name: str
    model: str
    spec: Mapping[str, Json]
    rows_done: int
    rows_total: int | None
    """None until its process has read the rows."""
    metrics: Mapping[str, Json] | None
    """`metrics` and `report`, once it has succeeded."""

    @property
    def samples(self) -> int:
        """Answers to each row."""
        return int(self.spec["config"].get("eval", {}).get("samples", 1))

    @property
    def pass_threshold(self) -> float:
        """Reward with which an answer passes."""
        return float(self.spec["config"].get("eval", {}).get("pass_threshold", 1.0))


class EvaluationQueue(TaskQueue[Evaluation]):
    """All evaluations of a server."""

    kind = "evaluation"
    noun = "evaluation"
    param = "evaluation_id"
    table = evaluations
    created = "Evaluation created"

    def __init__(self, database: Database, folder: DataFolder, clock: Callable[[], float] = time.time) -> None:
        """`clock` gives the times that people see."""
        super().__init__(database, clock)
        self._folder = folder

    def create(self, new: NewEvaluation) -> Evaluation:
        """Add an evaluation to the end of the queue. Once this returns, it outlives a power cut."""
        evaluation_id = new_id("eval_")
        folder = self._folder.evaluations / evaluation_id
        EvaluationDir.create(folder, new.spec)
        own = {"name": sendable(new.name), "model": sendable(new.model), "spec": json.dumps(dict(new.spec))}
        with self.database.write() as connection:
            self._insert(connection, evaluation_id, self._folder.stored(folder), TaskStatus.QUEUED, **own)
            return self._get(connection, evaluation_id)

    def cancel(self, evaluation_id: str) -> Evaluation:
        """End it; rows that are done stay. Conflict for one that has ended otherwise."""
        return self.request(evaluation_id, "cancel")

    def resume(self, evaluation_id: str) -> Evaluation:
        """Go on with one that failed or was cancelled: rows that are done are not done again."""
        with self.database.write() as connection:
            evaluation = self._get(connection, evaluation_id, lock=True)
            if evaluation.status in (TaskStatus.QUEUED, TaskStatus.RUNNING):
                return evaluation
            if evaluation.status is TaskStatus.SUCCEEDED:
                raise Conflict(f"evaluation {evaluation_id} has succeeded; create another one to repeat it")
            _refuse_process(evaluation)
            cleared = dict.fromkeys(("reason", "error_code", "error_param", "finished_at", "pid", "pid_started_at"))
            return self._move(connection, evaluation, TaskStatus.QUEUED, **cleared, restarts=0, place=last_place())

    def delete(self, evaluation_id: str) -> None:
        """Forget it, its answers and its folder. Raises Conflict while it waits or runs."""
        with self.database.write() as connection:
            evaluation = self._get(connection, evaluation_id, lock=True)
            if not evaluation.status.finished:
                raise Conflict(f"evaluation {evaluation_id} is {evaluation.status}; cancel it first")
            _refuse_process(evaluation)
            connection.execute(tasks.delete().where(tasks.c.seq == evaluation.seq))
        shutil.rmtree(self.folder(evaluation).path, ignore_errors=True)

    def folder(self, evaluation: Evaluation) -> EvaluationDir:
        """Where it writes."""
        return EvaluationDir(self._folder.found(evaluation.folder))

    def sweep(self) -> None:
        """Remove folders of evaluations that were never recorded, or are deleted."""
        with self.database.read() as connection:
            known = {self._folder.found(folder) for folder in connection.scalars(sa.select(tasks.c.folder))}
        for path in self._folder.evaluations.iterdir():
            if path not in known:
                shutil.rmtree(path, ignore_errors=True)

    def read(self, row: RowMapping) -> Evaluation:
        """A row of both tables."""
        metrics = None if row["metrics"] is None else json.loads(row["metrics"])
        status = TaskStatus.CANCELLED if row["requested"] == "cancel" else TaskStatus(row["status"])
        return Evaluation(**{**row, "status": status, "spec": json.loads(row["spec"]), "metrics": metrics})

    def _has_status(self, chosen: Sequence[TaskStatus]) -> Any:
        stopping = sa.func.coalesce(tasks.c.requested, "") == "cancel"
        shown = super()._has_status(chosen) & ~stopping
        return shown | stopping if TaskStatus.CANCELLED in chosen else shown


def _refuse_process(evaluation: Evaluation) -> None:
    if evaluation.requested is not None:
        raise Conflict(f"the process of evaluation {evaluation.id} is being stopped; try again in a moment")
