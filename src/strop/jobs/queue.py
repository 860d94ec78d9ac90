"""The queue as clients use it: create, look, request an action, resume, delete. `leases` is the server's side.

Each change is one durable transaction around a locked row, and the event about it is part of it. A
task that a server holds is changed by that server only: clients leave a requested action there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

import sqlalchemy as sa
from sqlalchemy import Connection, RowMapping, Table

from strop.errors import Conflict, NotFound
from strop.jobs.task import (
    TRANSITIONS,
    Action,
    Event,
    NewEvent,
    Task,
    TaskStatus,
    add_events,
    last_place,
    to_event,
)
from strop.store.db import Database
from strop.store.queries.lookup import sendable
from strop.store.tables import events, tasks

_GOALS: Mapping[Action, TaskStatus] = {"pause": TaskStatus.PAUSED, "cancel": TaskStatus.CANCELLED}
_HAPPENED: Mapping[TaskStatus, str] = {
    TaskStatus.PAUSED: "paused",
    TaskStatus.CANCELLED: "cancelled",
    TaskStatus.QUEUED: "resumed: waiting for its turn",
    TaskStatus.VALIDATING_FILES: "resumed: validating files",
}


T = TypeVar("T", bound=Task)


class TaskQueue(Generic[T]):
    """All tasks of one kind. Safe to use from many threads."""

    kind: ClassVar[str]
    noun: ClassVar[str]
    """Name of a task of this kind in messages."""
    param: ClassVar[str | None] = None
    """Name of the id in errors about unknown ids."""
    table: ClassVar[Table | None] = None
    """What only this kind has, by the number of the task."""
    created: ClassVar[str]
    """Message of a task's first event."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        """`clock` gives the times that people see; nothing is decided by it."""
        self.database = database
        self.clock = clock

    def get(self, task_id: str) -> T:
        """A task by its id. NotFound for an unknown one."""
        with self.database.read() as connection:
            return self._get(connection, task_id)

    def list(self, *, limit: int = 20, after: str | None = None, status: Iterable[TaskStatus] = ()) -> list[T]:
        """Tasks, newest first, from behind the one with id `after`; of any status by default.

        NotFound for an unknown `after`.
        """
        query = self._select().order_by(tasks.c.seq.desc()).limit(limit)
        if chosen := tuple(status):
            query = query.where(self._has_status(chosen))
        with self.database.read() as connection:
            if after is not None:
                query = query.where(tasks.c.seq < self._get(connection, after).seq)
            return [self.read(row) for row in connection.execute(query).mappings()]

    def position(self, task: T) -> int | None:
        """Place in the queue, 1 for the next to run; None for a task that is not queued."""
        if task.status is not TaskStatus.QUEUED:
            return None
        earlier = sa.tuple_(tasks.c.place, tasks.c.seq) < sa.tuple_(sa.literal(task.place), sa.literal(task.seq))
        queued = sa.and_(tasks.c.kind == self.kind, tasks.c.status == TaskStatus.QUEUED)
        with self.database.read() as connection:
            return 1 + (connection.scalar(sa.select(sa.func.count()).where(queued, earlier)) or 0)

    def request(self, task_id: str, action: Action) -> T:
        """Ask for a pause or a cancellation.

        A task that no process works on gets its new status at once. Otherwise the action stays
        requested until the process has saved its work and ended; cancelling goes before pausing.
        Asking for what is so already changes nothing. Conflict for a task that has ended otherwise.
        """
        with self.database.write() as connection:
            task = self._get(connection, task_id, lock=True)
            goal = _GOALS[action]
            if task.status is goal or task.requested in (action, "cancel"):
                return task
            if goal not in TRANSITIONS[task.status]:
                raise Conflict(f"{self.noun} {task_id} is {task.status} and cannot be {goal} any more")
            # Files are checked until that is done; cancelling need not wait for it.
            checking = task.status is TaskStatus.VALIDATING_FILES and action == "pause"
            if task.status is TaskStatus.RUNNING or checking:
                return self._change(connection, task, requested=action)
            return self._move(connection, task, goal, requested=None)

    def event(self, task_id: str, event: NewEvent) -> None:
        """Record something about a task. NotFound for an unknown one."""
        with self.database.write() as connection:
            add_events(connection, self._get(connection, task_id).seq, [event], self.clock())

    def events(self, task_id: str, after_seq: int = 0, limit: int = 100) -> Sequence[Event]:
        """Events behind a number, oldest first: what a follower has not seen yet."""
        return self._events(task_id, events.c.seq > after_seq, events.c.seq.asc(), limit)

    def latest_events(self, task_id: str, before_seq: int | None = None, limit: int = 20) -> Sequence[Event]:
        """Events before a number, newest first: a page of OpenAI's list."""
        earlier = sa.true() if before_seq is None else events.c.seq < before_seq
        return self._events(task_id, earlier, events.c.seq.desc(), limit)

    def read(self, row: RowMapping) -> T:
        """What a row of the tables stands for."""
        raise NotImplementedError

    def _events(self, task_id: str, chosen: Any, order: Any, limit: int) -> Sequence[Event]:
        with self.database.read() as connection:
            task = self._get(connection, task_id)
            query = sa.select(events).where(events.c.task == task.seq, chosen).order_by(order).limit(limit)
            return [to_event(row) for row in connection.execute(query).mappings()]

    def _select(self) -> sa.Select[Any]:
        """Every task of this kind, with all that it has."""
        if self.table is None:
            return sa.select(tasks).where(tasks.c.kind == self.kind)
        own = [column for column in self.table.c if column.name != "task"]
        return sa.select(*tasks.c, *own).join_from(tasks, self.table)

    def _get(self, connection: Connection, task_id: str, lock: bool = False) -> T:
        """One task. With `lock` it stays as it is until the transaction ends; SQLite has one writer anyway."""
        query = self._select().where(tasks.c.id == sendable(task_id))
        row = connection.execute(query.with_for_update() if lock else query).mappings().first()
        if row is None:
            raise NotFound(f"no {self.noun} {task_id!r}", param=self.param)
        return self.read(row)

    def _first(self, condition: Any) -> T | None:
        with self.database.read() as connection:
            row = connection.execute(self._select().where(condition).limit(1)).mappings().first()
        return self.read(row) if row else None

    def _has_status(self, chosen: Sequence[TaskStatus]) -> Any:
        return tasks.c.status.in_(chosen)

    def _insert(self, connection: Connection, task_id: str, folder: str, status: TaskStatus, **own: Any) -> int:
        """Add a task to the end of the queue; its number."""
        values = {"id": task_id, "kind": self.kind, "created_at": self.clock(), "status": status, "folder": folder}
        statement = tasks.insert().values(**values, place=last_place()).returning(tasks.c.seq)
        seq = int(connection.execute(statement).scalar_one())
        if self.table is not None:
            connection.execute(self.table.insert().values(task=seq, **own))
        add_events(connection, seq, [NewEvent(self.created, once="created")], self.clock())
        return seq

    def _move(
        self, connection: Connection, task: T, status: TaskStatus, event: NewEvent | None = None, **values: Any
    ) -> T:
        """Change the status of a task that no server needs to agree to, and record an event about it.

        With a new token: a server that holds it has lost it.
        """
        event = event or NewEvent(f"{self.noun.capitalize()} {_HAPPENED[status]}")
        add_events(connection, task.seq, [event], self.clock())
        if status.finished:
            values["finished_at"] = self.clock()
        free = {"status": status, "token": task.token + 1, "lease_owner": None, "lease_expires_at": None}
        return self._change(connection, task, **free, **values)

    def _change(self, connection: Connection, task: T, **values: Any) -> T:
        connection.execute(tasks.update().where(tasks.c.seq == task.seq).values(**values))
        return self._get(connection, task.id)
