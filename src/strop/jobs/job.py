"""Jobs: training tasks as clients ask for them and see them, and their queue."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, RowMapping

from strop.config import RunConfig, parse_config
from strop.errors import Conflict, StropError
from strop.jobs.queue import TaskQueue
from strop.jobs.task import NewEvent, Task, TaskStatus, last_place
from strop.store.ids import new_id
from strop.store.tables import jobs, tasks
from strop.types import Json


@dataclass(frozen=True)
class NewJob:
    """A client's request for a job."""

    name: str
    model: str
    """As the client named it; `config.model` is what is loaded."""
    config: RunConfig
    """Paths may be relative to the data folder: then the folder may move."""
    request: Mapping[str, Json] = field(default_factory=dict)
    """What the client sent, echoed in answers; `suffix` and `metadata` are read from it."""
    training_file: str | None = None
    validation_file: str | None = None
    forked_from: str | None = None
    """Id of the checkpoint that training starts from."""


@dataclass(frozen=True)
class Job(Task):
    """A training task at one moment. Its folder is the run folder."""

    name: str
    model: str
    config_json: str
    request: Mapping[str, Json]
    training_file: str | None
    validation_file: str | None
    fine_tuned_model: str | None
    forked_from: str | None
    run_id: str | None

    @cached_property
    def config(self) -> RunConfig:
        """The configuration, parsed when it is first asked for."""
        return parse_config(json.loads(self.config_json), f"job {self.id}")

    def changed(self, changes: Mapping[str, Any]) -> RunConfig:
        """The configuration with changes: `{"train": {"learning_rate": 1e-5}}` changes one value.

        Lists are replaced as a whole. ConfigError where the result cannot be run.
        """
        return parse_config(_merged(json.loads(self.config_json), changes), f"job {self.id}, changed")

    @property
    def suffix(self) -> str | None:
        """What the client wants in the name of the model."""
        return self.request.get("suffix")

    @property
    def metadata(self) -> Mapping[str, str] | None:
        """The client's own key-value pairs."""
        return self.request.get("metadata")

    @property
    def model_name(self) -> str:
        """What the trained model is, or will be, called: `ft:<base>:strop:<suffix>:<8 hex>`.

        Checkpoints append `:ckpt-step-<N>`. A base that is a fine-tuned model itself gives its own base.
        """
        parts = self.model.split(":")
        base = parts[1] if parts[0] == "ft" and len(parts) > 1 else self.model
        base = base.rstrip("/").rpartition("/")[2]
        return f"ft:{_plain(base)}:strop:{_plain(self.suffix or '')}:{short_id(self.id)}"


class JobQueue(TaskQueue[Job]):
    """All jobs of a server."""

    kind = "training"
    noun = "job"
    table = jobs
    created = "Created fine-tuning job"

    def create(self, new: NewJob) -> Job:
        """Add a job to the end of the queue, and a check of its files. Once this returns, it outlives a power cut."""
        with self.database.write() as connection:
            job_id = _unused_id(connection)
            seq = self._insert(
                connection,
                job_id,
                f"runs/{job_id}",
                TaskStatus.VALIDATING_FILES,
                name=new.name,
                model=new.model,
                config=new.config.model_dump_json(),
                request=json.dumps(dict(new.request), ensure_ascii=False),
                training_file=new.training_file,
                validation_file=new.validation_file,
                forked_from=new.forked_from,
            )
            self._add_check(connection, seq)
            return self._get(connection, job_id)

    def by_model(self, name: str) -> Job | None:
        """The job that made a fine-tuned model, by the model's name."""
        return self._first(jobs.c.fine_tuned_model == name)

    def by_model_name(self, name: str) -> Job | None:
        """The job that has made, or will make, the model of this name."""
        short = name.rpartition(":")[2]
        if re.fullmatch("[0-9a-f]{8}", short) is None:
            return None
        job = self._first(tasks.c.id.like(f"ftjob-{short}%"))
        return job if job is not None and job.model_name == name else None

    def by_run(self, run_id: str) -> Job | None:
        """The job that a run belongs to; None for a run that was imported."""
        return self._first(jobs.c.run_id == run_id)

    def resume(self, job_id: str, changes: Mapping[str, Any] | None = None) -> Job:
        """Put a paused or failed job at the end of the queue: it goes on from its newest checkpoint.

        `changes` to the tables of its configuration are as in `clone`; ConfigError where the result
        cannot be run. A job that waits or runs stays as it is. Conflict for one that is finished,
        or is being paused or cancelled at this moment.
        """
        with self.database.write() as connection:
            job = self._get(connection, job_id, lock=True)
            if job.requested:
                raise Conflict(f"job {job_id} is asked to {job.requested}: wait until that is done, then resume it")
            if job.status in (TaskStatus.VALIDATING_FILES, TaskStatus.QUEUED, TaskStatus.RUNNING):
                if changes:
                    raise Conflict(f"job {job_id} is {job.status}; pause it, then resume it with changes")
                return job
            if job.status not in (TaskStatus.PAUSED, TaskStatus.FAILED):
                raise Conflict(f"job {job_id} is {job.status}; clone it, or fork one of its checkpoints, to train on")
            unchecked = job.status is TaskStatus.FAILED and job.started_at is None
            goal = TaskStatus.VALIDATING_FILES if unchecked else TaskStatus.QUEUED
            config = job.changed(changes or {}).model_dump_json()
            connection.execute(jobs.update().where(jobs.c.task == job.seq).values(config=config))
            cleared = dict.fromkeys(("reason", "error_code", "error_param", "finished_at", "pid", "pid_started_at"))
            resumed = self._move(connection, job, goal, **cleared, restarts=0, place=last_place())
            if unchecked:
                self._add_check(connection, job.seq)
            return resumed

    def delete(self, job_id: str) -> Job:
        """Forget a finished job and its events; its run folder stays. Conflict for one that is not finished."""
        with self.database.write() as connection:
            job = self._get(connection, job_id, lock=True)
            if not job.status.finished:
                raise Conflict(f"job {job_id} is {job.status}; cancel it first, then delete it")
            connection.execute(tasks.delete().where(tasks.c.seq == job.seq))
        return job

    def read(self, row: RowMapping) -> Job:
        """A row of both tables."""
        values = {**row, "status": TaskStatus(row["status"]), "request": json.loads(row["request"])}
        return Job(config_json=values.pop("config"), **values)

    def files_checked(self, connection: Connection, job_seq: int, found: Mapping[str, Json] | StropError) -> None:
        """Let a job go on whose files were checked: to the queue, to a pause that was requested, or to a failure.

        Nothing where a client has cancelled it meanwhile.
        """
        row = connection.execute(self._select().where(tasks.c.seq == job_seq).with_for_update()).mappings().first()
        job = self.read(row) if row else None
        if job is None or job.status is not TaskStatus.VALIDATING_FILES:
            return
        if isinstance(found, StropError):
            failure = {"reason": found.message, "error_code": found.code, "error_param": found.param}
            event = NewEvent(f"Job failed: {found.message}", level="error")
            self._move(connection, job, TaskStatus.FAILED, event, **failure, requested=None)
        elif job.requested == "pause":
            self._move(connection, job, TaskStatus.PAUSED, NewEvent("Job paused", data=found), requested=None)
        else:
            event = NewEvent("Files validated and moving job to queued state", data=found)
            self._move(connection, job, TaskStatus.QUEUED, event)

    def _move(
        self, connection: Connection, task: Job, status: TaskStatus, event: NewEvent | None = None, **values: Any
    ) -> Job:
        if task.status is TaskStatus.VALIDATING_FILES:
            self._cancel_check(connection, task)
        return super()._move(connection, task, status, event, **values)

    def _add_check(self, connection: Connection, job_seq: int) -> None:
        """Have the files of a job checked, by a task that the job waits for."""
        task_id, job = new_id("task_"), tasks.alias()
        place = sa.select(job.c.place).where(job.c.seq == job_seq).scalar_subquery()
        values = {"id": task_id, "kind": "validation", "created_at": self.clock(), "status": TaskStatus.QUEUED}
        statement = tasks.insert().values(**values, parent=job_seq, folder=f"tasks/{task_id}", place=place)
        connection.execute(statement)

    def _cancel_check(self, connection: Connection, job: Job) -> None:
        check = tasks.update().where(tasks.c.parent == job.seq)
        ended = {"status": TaskStatus.CANCELLED, "finished_at": self.clock()}
        connection.execute(check.where(tasks.c.status == TaskStatus.QUEUED).values(**ended))
        connection.execute(check.where(tasks.c.status == TaskStatus.RUNNING).values(requested="cancel"))


def _plain(text: str) -> str:
    """What a part of a model's name may hold: no slash, no colon, no space."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-")


def short_id(job_id: str) -> str:
    """The first 8 digits of a job's id: no two jobs of a server have the same ones."""
    return job_id.removeprefix("ftjob-")[:8]


def clone(job: Job, changes: Mapping[str, Any] | None = None, name: str | None = None) -> NewJob:
    """The same job once more, from the start, with changes to the tables of its configuration.

    ConfigError where the result cannot be run. The request is the old one: the caller replaces
    what it changes there.
    """
    return NewJob(
        name=name or job.name,
        model=job.model,
        config=job.changed(changes or {}),
        request=job.request,
        training_file=job.training_file,
        validation_file=job.validation_file,
        forked_from=job.forked_from,
    )


def _merged(tables: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Nested tables with changes on top; whatever is no table is replaced as a whole."""
    result = dict(tables)
    for key, value in changes.items():
        known = result.get(key)
        both = isinstance(value, Mapping) and isinstance(known, Mapping)
        result[key] = _merged(known, value) if both else value  # type: ignore[arg-type]
    return result


def _unused_id(connection: Connection) -> str:
    """An id whose first digits are new, since names of models end in them."""
    while True:
        job_id = new_id("ftjob-")
        if connection.scalar(sa.select(tasks.c.seq).where(tasks.c.id.like(f"ftjob-{short_id(job_id)}%"))) is None:
            return job_id
