"""Evaluations of a server: their queue. `evaluating` is what runs them.

What an evaluation is to do lies in its folder, as spec.json; the process that does it writes
only there.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, RowMapping

from strop.errors import Conflict, NotFound
from strop.store.datafolder import DataFolder
from strop.store.db import Database
from strop.store.evaldir import EvaluationDir
from strop.store.ids import new_id
from strop.store.queries.lookup import sendable
from strop.store.tables import evaluation_rows, evaluations
from strop.types import Json


class EvaluationStatus(StrEnum):
    """Status of an evaluation."""

    QUEUED = "queued"
    """Waits for its turn."""
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def finished(self) -> bool:
        """Whether nothing more happens to it by itself."""
        return self not in (EvaluationStatus.QUEUED, EvaluationStatus.RUNNING)


_S = EvaluationStatus
_OPEN = (_S.QUEUED, _S.RUNNING)


@dataclass(frozen=True)
class NewEvaluation:
    """What a client asks for."""

    name: str
    model: str
    """For people."""
    spec: Mapping[str, Json]
    """See `evals.spec`; its paths are relative to a folder two levels below the data folder."""


@dataclass(frozen=True)
class Evaluation:
    """A row of the evaluations table at one moment. Times are seconds since 1970."""

    seq: int
    id: str
    created_at: float
    name: str
    status: EvaluationStatus
    reason: str | None
    """Why it failed or was started again: for people."""
    model: str
    spec: Mapping[str, Json]
    folder: str
    """Relative to the data folder."""
    rows_done: int
    rows_total: int | None
    """None until its process has read the rows."""
    metrics: Mapping[str, Json] | None
    """`metrics` and `report`, once it has succeeded."""
    started_at: float | None
    finished_at: float | None
    restarts: int
    pid: int | None
    """Of its process, until that is known to have ended."""
    pid_started_at: float | None

    @property
    def samples(self) -> int:
        """Answers to each row."""
        return int(self.spec["config"].get("eval", {}).get("samples", 1))

    @property
    def pass_threshold(self) -> float:
        """Reward with which an answer passes."""
        return float(self.spec["config"].get("eval", {}).get("pass_threshold", 1.0))


class EvaluationQueue:
    """All evaluations of a server. Safe to use from many threads."""

    def __init__(self, database: Database, folder: DataFolder, clock: Callable[[], float] = time.time) -> None:
        """`clock` gives the times that people see."""
        self.database = database
        self._folder = folder
        self.clock = clock

    def create(self, new: NewEvaluation) -> Evaluation:
        """Add an evaluation to the end of the queue. Once this returns, it outlives a power cut."""
        evaluation_id = new_id("eval_")
        folder = self._folder.evaluations / evaluation_id
        EvaluationDir.create(folder, new.spec)
        values = {
            "id": evaluation_id,
            "created_at": self.clock(),
            "name": sendable(new.name),
            "status": _S.QUEUED,
            "model": sendable(new.model),
            "spec": json.dumps(dict(new.spec)),
            "folder": self._folder.stored(folder),
        }
        with self.database.write() as connection:
            row = connection.execute(evaluations.insert().values(**values).returning(*evaluations.c))
            return _evaluation(row.mappings().one())

    def get(self, evaluation_id: str) -> Evaluation:
        """An evaluation by its id. NotFound for an unknown one."""
        with self.database.read() as connection:
            return _get(connection, evaluation_id)

    def list(
        self, *, limit: int = 20, after: str | None = None, status: Iterable[EvaluationStatus] = ()
    ) -> Sequence[Evaluation]:
        """Evaluations, newest first, from behind the one with id `after`; of any status by default."""
        query = sa.select(evaluations).order_by(evaluations.c.seq.desc()).limit(limit)
        if wanted := tuple(status):
            query = query.where(evaluations.c.status.in_(wanted))
        with self.database.read() as connection:
            if after is not None:
                query = query.where(evaluations.c.seq < _get(connection, after).seq)
            return [_evaluation(row) for row in connection.execute(query).mappings()]

    def to_do(self) -> Sequence[Evaluation]:
        """Those that wait, run, or may still have a process, in the order of the queue."""
        query = sa.select(evaluations).where(evaluations.c.status.in_(_OPEN) | evaluations.c.pid.is_not(None))
        with self.database.read() as connection:
            return [_evaluation(row) for row in connection.execute(query.order_by(evaluations.c.seq)).mappings()]

    def position(self, evaluation: Evaluation) -> int | None:
        """Place in the queue, 1 for the next to run; None for one that is not queued."""
        if evaluation.status is not _S.QUEUED:
            return None
        query = sa.select(sa.func.count()).where(evaluations.c.status == _S.QUEUED, evaluations.c.seq < evaluation.seq)
        with self.database.read() as connection:
            return 1 + (connection.scalar(query) or 0)

    def cancel(self, evaluation_id: str) -> Evaluation:
        """End it; rows that are done stay. Conflict for one that has ended otherwise."""
        with self.database.write() as connection:
            evaluation = _get(connection, evaluation_id, lock=True)
            if evaluation.status is _S.CANCELLED:
                return evaluation
            if evaluation.status.finished:
                raise Conflict(f"evaluation {evaluation_id} is {evaluation.status} and cannot be cancelled any more")
            return change(connection, evaluation, status=_S.CANCELLED, finished_at=self.clock())

    def resume(self, evaluation_id: str) -> Evaluation:
        """Go on with one that failed or was cancelled: rows that are done are not done again."""
        with self.database.write() as connection:
            evaluation = _get(connection, evaluation_id, lock=True)
            if evaluation.status in _OPEN:
                return evaluation
            if evaluation.status is _S.SUCCEEDED:
                raise Conflict(f"evaluation {evaluation_id} has succeeded; create another one to repeat it")
            _refuse_process(evaluation)
            return change(connection, evaluation, status=_S.QUEUED, reason=None, finished_at=None, restarts=0)

    def delete(self, evaluation_id: str) -> None:
        """Forget it, its answers and its folder. Conflict as long as it waits or runs."""
        with self.database.write() as connection:
            evaluation = _get(connection, evaluation_id, lock=True)
            if not evaluation.status.finished:
                raise Conflict(f"evaluation {evaluation_id} is {evaluation.status}; cancel it first")
            _refuse_process(evaluation)
            connection.execute(evaluation_rows.delete().where(evaluation_rows.c.evaluation == evaluation.seq))
            connection.execute(evaluations.delete().where(evaluations.c.seq == evaluation.seq))
        shutil.rmtree(self.folder(evaluation).path, ignore_errors=True)

    def folder(self, evaluation: Evaluation) -> EvaluationDir:
        """Where it writes."""
        return EvaluationDir(self._folder.found(evaluation.folder))

    def sweep(self) -> None:
        """Remove folders of evaluations that were never recorded, or are deleted."""
        with self.database.read() as connection:
            known = {self._folder.found(folder) for folder in connection.scalars(sa.select(evaluations.c.folder))}
        for path in self._folder.evaluations.iterdir():
            if path not in known:
                shutil.rmtree(path, ignore_errors=True)


def change(connection: Connection, evaluation: Evaluation, **values: Any) -> Evaluation:
    """Change the row of an evaluation, whatever has become of it meanwhile."""
    statement = evaluations.update().where(evaluations.c.seq == evaluation.seq).values(**values)
    return _evaluation(connection.execute(statement.returning(*evaluations.c)).mappings().one())


def move(connection: Connection, evaluation: Evaluation, **values: Any) -> Evaluation:
    """Change it if its status is still the one that was seen. Conflict where a client was faster."""
    here = (evaluations.c.seq == evaluation.seq) & (evaluations.c.status == evaluation.status)
    row = connection.execute(evaluations.update().where(here).values(**values).returning(*evaluations.c))
    found = row.mappings().one_or_none()
    if found is None:
        raise Conflict(f"evaluation {evaluation.id} is not {evaluation.status} any more")
    return _evaluation(found)


def _refuse_process(evaluation: Evaluation) -> None:
    if evaluation.pid is not None:
        raise Conflict(f"the process of evaluation {evaluation.id} is being stopped; try again in a moment")


def _get(connection: Connection, evaluation_id: str, lock: bool = False) -> Evaluation:
    query = sa.select(evaluations).where(evaluations.c.id == sendable(evaluation_id))
    row = connection.execute(query.with_for_update() if lock else query).mappings().first()
    if row is None:
        raise NotFound(f"no evaluation {evaluation_id!r}", param="evaluation_id")
    return _evaluation(row)


def _evaluation(row: RowMapping) -> Evaluation:
    metrics = None if row["metrics"] is None else json.loads(row["metrics"])
    values = {**row, "status": _S(row["status"]), "spec": json.loads(row["spec"]), "metrics": metrics}
    return Evaluation(**values)
