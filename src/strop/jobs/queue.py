"""The queue as clients use it: create, look, pause, resume, cancel. `leases` is the runner's side.

Each change is one durable transaction around a locked row, and the event that tells of it is
part of it. A job that a runner holds is changed by that runner only: clients leave a wish there.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, RowMapping
from sqlalchemy.dialects import postgresql, sqlite

from strop.errors import Conflict, NotFound
from strop.jobs.job import Event, Job, NewEvent, NewJob, Wanted, short_id
from strop.jobs.states import TRANSITIONS, JobStatus
from strop.store.db import Database
from strop.store.ids import new_id
from strop.store.tables import events, jobs

_DONE: Mapping[Wanted, JobStatus] = {"pause": JobStatus.PAUSED, "cancel": JobStatus.CANCELLED}
_TOLD: Mapping[JobStatus, str] = {
    JobStatus.PAUSED: "Job paused",
    JobStatus.CANCELLED: "Job cancelled",
    JobStatus.QUEUED: "Job resumed: waiting for its turn",
    JobStatus.VALIDATING_FILES: "Job resumed: validating files",
}


class JobQueue:
    """All jobs of a server. Safe to use from many threads."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        """`clock` gives the times that people see; nothing is decided by it."""
        self.database = database
        self.clock = clock

    def create(self, new: NewJob) -> Job:
        """Add a job to the end of the queue. Once this returns, it outlives a power cut."""
        with self.database.write() as connection:
            job_id = _unused_id(connection)
            row = connection.execute(
                jobs.insert()
                .values(
                    id=job_id,
                    created_at=self.clock(),
                    name=new.name,
                    status=JobStatus.VALIDATING_FILES,
                    model=new.model,
                    config=new.config.model_dump_json(),
                    request=json.dumps(dict(new.request), ensure_ascii=False),
                    training_file=new.training_file,
                    validation_file=new.validation_file,
                    forked_from=new.forked_from,
                    folder=f"runs/{job_id}",
                    queued_seq=_last_place(),
                )
                .returning(*jobs.c)
            )
            job = to_job(row.mappings().one())
            add_events(connection, job.seq, [NewEvent("Created fine-tuning job", once="created")], self.clock())
        return job

    def get(self, job_id: str) -> Job:
        """A job by its id. NotFound for an unknown one."""
        with self.database.read() as connection:
            return _get(connection, job_id)

    def by_model(self, name: str) -> Job | None:
        """The job that made a fine-tuned model, by the model's name."""
        return self._first(jobs.c.fine_tuned_model == name)

    def by_model_name(self, name: str) -> Job | None:
        """The job whose model is called so, or will be once it is finished."""
        short = name.rpartition(":")[2]
        if re.fullmatch("[0-9a-f]{8}", short) is None:
            return None
        job = self._first(jobs.c.id.like(f"ftjob-{short}%"))
        return job if job is not None and job.model_name == name else None

    def delete(self, job_id: str) -> Job:
        """Forget a finished job and its events; its run folder stays. Conflict for one that is not finished."""
        with self.database.write() as connection:
            job = _locked(connection, job_id)
            if not job.status.finished:
                raise Conflict(f"job {job_id} is {job.status}; cancel it first, then delete it")
            connection.execute(jobs.delete().where(jobs.c.seq == job.seq))
        return job

    def by_run(self, run_id: str) -> Job | None:
        """The job that a run belongs to; None for a run that was imported."""
        return self._first(jobs.c.run_id == run_id)

    def list(self, *, limit: int = 20, after: str | None = None, status: Iterable[JobStatus] = ()) -> list[Job]:
        """Jobs, newest first, from behind the one with id `after`; of any status by default.

        NotFound for an unknown `after`.
        """
        query = sa.select(jobs).order_by(jobs.c.seq.desc()).limit(limit)
        if wanted := tuple(status):
            query = query.where(jobs.c.status.in_(wanted))
        with self.database.read() as connection:
            if after is not None:
                query = query.where(jobs.c.seq < _get(connection, after).seq)
            return [to_job(row) for row in connection.execute(query).mappings()]

    def position(self, job: Job) -> int | None:
        """Place in the queue, 1 for the next to run; None for a job that is not queued."""
        if job.status is not JobStatus.QUEUED:
            return None
        earlier = sa.tuple_(jobs.c.queued_seq, jobs.c.seq) < sa.tuple_(sa.literal(job.queued_seq), sa.literal(job.seq))
        query = sa.select(sa.func.count()).where(jobs.c.status == JobStatus.QUEUED, earlier)
        with self.database.read() as connection:
            return 1 + (connection.scalar(query) or 0)

    def want(self, job_id: str, wanted: Wanted) -> Job:
        """Ask for a pause or a cancellation.

        A job that no process works on is there at once. Otherwise `wanted` stays on the job until
        its process has saved a checkpoint and ended; cancelling goes before pausing. Asking for
        what is so already changes nothing. Conflict for a job that has ended otherwise.
        """
        with self.database.write() as connection:
            job = _locked(connection, job_id)
            goal = _DONE[wanted]
            if job.status is goal or job.wanted in (wanted, "cancel"):
                return job
            if goal not in TRANSITIONS[job.status]:
                raise Conflict(f"job {job_id} is {job.status} and cannot be {goal} any more")
            # The files are read by a process that goes on until it is done; cancelling need not wait.
            if job.status is JobStatus.RUNNING or (job.status is JobStatus.VALIDATING_FILES and wanted == "pause"):
                return self._change(connection, job, wanted=wanted)
            return self._move(connection, job, goal, wanted=None)

    def resume(self, job_id: str, changes: Mapping[str, Any] | None = None) -> Job:
        """Put a paused or failed job at the end of the queue: it goes on from its newest checkpoint.

        `changes` to the tables of its configuration are as in `clone`; ConfigError where the result
        cannot be run. A job that waits or runs stays as it is. Conflict for one that is finished,
        or is being paused or cancelled at this moment.
        """
        with self.database.write() as connection:
            job = _locked(connection, job_id)
            if job.wanted:
                raise Conflict(f"job {job_id} is asked to {job.wanted}: wait until that is done, then resume it")
            if job.status in (JobStatus.VALIDATING_FILES, JobStatus.QUEUED, JobStatus.RUNNING):
                if changes:
                    raise Conflict(f"job {job_id} is {job.status}; pause it, then resume it with changes")
                return job
            if JobStatus.QUEUED not in TRANSITIONS[job.status]:
                raise Conflict(f"job {job_id} is {job.status}; clone it, or fork one of its checkpoints, to train on")
            unchecked = job.status is JobStatus.FAILED and job.started_at is None
            goal = JobStatus.VALIDATING_FILES if unchecked else JobStatus.QUEUED
            config = job.changed(changes or {}).model_dump_json()
            cleared = dict.fromkeys(("reason", "error_code", "error_param", "finished_at", "pid", "pid_started_at"))
            return self._move(connection, job, goal, **cleared, config=config, restarts=0, queued_seq=_last_place())

    def event(self, job_id: str, event: NewEvent) -> None:
        """Tell something about a job. NotFound for an unknown one."""
        with self.database.write() as connection:
            add_events(connection, _get(connection, job_id).seq, [event], self.clock())

    def events(self, job_id: str, after_seq: int = 0, limit: int = 100) -> Sequence[Event]:
        """Events behind a number, oldest first: what a follower has not seen yet."""
        return self._events(job_id, events.c.seq > after_seq, events.c.seq.asc(), limit)

    def latest_events(self, job_id: str, before_seq: int | None = None, limit: int = 20) -> Sequence[Event]:
        """Events before a number, newest first: a page of OpenAI's list."""
        earlier = sa.true() if before_seq is None else events.c.seq < before_seq
        return self._events(job_id, earlier, events.c.seq.desc(), limit)

    def _events(self, job_id: str, chosen: Any, order: Any, limit: int) -> Sequence[Event]:
        with self.database.read() as connection:
            job = _get(connection, job_id)
            query = sa.select(events).where(events.c.job == job.seq, chosen).order_by(order).limit(limit)
            return [_to_event(row) for row in connection.execute(query).mappings()]

    def _first(self, condition: Any) -> Job | None:
        with self.database.read() as connection:
            row = connection.execute(sa.select(jobs).where(condition).limit(1)).mappings().first()
        return to_job(row) if row else None

    def _move(self, connection: Connection, job: Job, status: JobStatus, **values: Any) -> Job:
        """Change the status of a job that no runner needs to agree to, and tell of it."""
        add_events(connection, job.seq, [NewEvent(_TOLD[status])], self.clock())
        if status.finished:
            values["finished_at"] = self.clock()
        # A new token: a runner that holds the job, to validate its files say, has lost it.
        return self._change(
            connection, job, status=status, token=job.token + 1, lease_owner=None, lease_expires_at=None, **values
        )

    def _change(self, connection: Connection, job: Job, **values: Any) -> Job:
        statement = jobs.update().where(jobs.c.seq == job.seq).values(**values).returning(*jobs.c)
        return to_job(connection.execute(statement).mappings().one())


def to_job(row: RowMapping) -> Job:
    """A row of the jobs table."""
    values = {**row, "status": JobStatus(row["status"]), "request": json.loads(row["request"])}
    return Job(config_json=values.pop("config"), **values)


def add_events(connection: Connection, job_seq: int, new: Iterable[NewEvent], now: float) -> None:
    """Record events within a transaction; those with a known `once` are there already."""
    rows = [
        {
            "job": job_seq,
            "created_at": now,
            "level": event.level,
            "type": event.type,
            "message": event.message,
            "data": None if event.data is None else json.dumps(event.data, ensure_ascii=False),
            "once": event.once,
        }
        for event in new
    ]
    if rows:
        insert = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
        connection.execute(insert(events).on_conflict_do_nothing(index_elements=["job", "once"]), rows)


def _to_event(row: RowMapping) -> Event:
    data = None if row["data"] is None else json.loads(row["data"])
    return Event(row["seq"], row["created_at"], row["level"], row["type"], row["message"], data)


def _get(connection: Connection, job_id: str, lock: bool = False) -> Job:
    query = sa.select(jobs).where(jobs.c.id == job_id)
    row = connection.execute(query.with_for_update() if lock else query).mappings().first()
    if row is None:
        raise NotFound(f"no job {job_id!r}")
    return to_job(row)


def _locked(connection: Connection, job_id: str) -> Job:
    """A job that stays as it is until the transaction ends. SQLite has one writer anyway."""
    return _get(connection, job_id, lock=True)


def _last_place() -> sa.ScalarSelect[int]:
    other = jobs.alias()
    return sa.select(sa.func.coalesce(sa.func.max(other.c.queued_seq), 0) + 1).scalar_subquery()


def _unused_id(connection: Connection) -> str:
    """An id whose first digits are new, since names of models end in them."""
    while True:
        job_id = new_id("ftjob-")
        if connection.scalar(sa.select(jobs.c.seq).where(jobs.c.id.like(f"ftjob-{short_id(job_id)}%"))) is None:
            return job_id
