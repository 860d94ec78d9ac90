"""Tasks: units of work in separate processes, and their events.

A task of any kind has a row in the table `tasks`. What only one kind has is in a table of that
kind, or in the task's folder.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

import sqlalchemy as sa
from sqlalchemy import Connection, RowMapping
from sqlalchemy.dialects import postgresql, sqlite

from strop.errors import NotFound
from strop.store.tables import events, tasks
from strop.types import Json

Action = Literal["pause", "cancel"]
"""What a client can ask for while a task runs."""
Level = Literal["info", "warn", "error"]


class TaskStatus(StrEnum):
    """Status of a task. The words are those of OpenAI's API, and `paused`."""

    VALIDATING_FILES = "validating_files"
    """Of a training task: another task checks its data files."""
    QUEUED = "queued"
    """Waits for its turn."""
    RUNNING = "running"
    """A process works on it, or is about to be started again."""
    PAUSED = "paused"
    """Stopped on request, or because something has to be fixed first; can be resumed."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def finished(self) -> bool:
        """Whether nothing more happens to the task by itself, and it holds nothing."""
        return self in (TaskStatus.SUCCEEDED, TaskStatus.FAILED, TaskStatus.CANCELLED)


_S = TaskStatus
TRANSITIONS: Mapping[TaskStatus, frozenset[TaskStatus]] = {
    _S.VALIDATING_FILES: frozenset({_S.QUEUED, _S.PAUSED, _S.FAILED, _S.CANCELLED}),
    _S.QUEUED: frozenset({_S.RUNNING, _S.PAUSED, _S.CANCELLED}),
    _S.RUNNING: frozenset({_S.SUCCEEDED, _S.PAUSED, _S.FAILED, _S.CANCELLED}),
    _S.PAUSED: frozenset({_S.QUEUED, _S.CANCELLED}),
    # A failed task can be resumed once the reason is fixed; its files are checked again if it never started.
    _S.FAILED: frozenset({_S.QUEUED, _S.VALIDATING_FILES}),
    _S.SUCCEEDED: frozenset(),
    _S.CANCELLED: frozenset(),
}
"""From each status, the ones that may follow. A cancelled evaluation can be resumed too: see `EvaluationQueue`."""


@dataclass(frozen=True)
class Task:
    """A row of the tasks table at one moment. Times are seconds since 1970."""

    seq: int
    id: str
    created_at: float
    kind: str
    status: TaskStatus
    requested: Action | None
    """The action that a client asked for and that is not done yet."""
    reason: str | None
    """Why it waits, was restarted, paused or failed, and what to do: for people."""
    error_code: str | None
    error_param: str | None
    parent: int | None
    """`seq` of the task that waits for this one."""
    folder: str
    """Relative to the data folder."""
    place: int
    """In the queue: the lowest is next."""
    started_at: float | None
    """When a process first worked on it."""
    finished_at: float | None
    restarts: int
    """Automatic ones since it last got on."""
    token: int
    lease_owner: str | None
    lease_expires_at: float | None
    pid: int | None
    pid_started_at: float | None

    @property
    def error(self) -> dict[str, Json] | None:
        """Why it failed, in OpenAI's form; None unless it did."""
        if self.status is not TaskStatus.FAILED:
            return None
        return {"code": self.error_code, "message": self.reason, "param": self.error_param}


@dataclass(frozen=True)
class NewEvent:
    """Something to record about a task."""

    message: str
    level: Level = "info"
    type: Literal["message", "metrics"] = "message"
    data: Mapping[str, Json] | None = None
    once: str | None = None
    """A second event of the same task with this key is not recorded."""


@dataclass(frozen=True)
class Event:
    """An event as it was recorded."""

    seq: int
    created_at: float
    level: Level
    type: Literal["message", "metrics"]
    message: str
    data: Mapping[str, Json] | None

    @property
    def id(self) -> str:
        """What clients see: the number of the event."""
        return f"ftevent-{self.seq:024x}"


def event_seq(event_id: str) -> int:
    """The number in the id of an event. NotFound for what is no such id."""
    match = re.fullmatch(r"ftevent-([0-9a-f]{24})", event_id)
    if match is None:
        raise NotFound(f"no event {event_id!r}")
    return int(match[1], 16)


def to_task(row: RowMapping) -> Task:
    """A row of the tasks table."""
    return Task(**{**row, "status": TaskStatus(row["status"])})


def to_event(row: RowMapping) -> Event:
    """A row of the events table."""
    data = None if row["data"] is None else json.loads(row["data"])
    return Event(row["seq"], row["created_at"], row["level"], row["type"], row["message"], data)


def add_events(connection: Connection, task_seq: int, new: Iterable[NewEvent], now: float) -> None:
    """Record events within a transaction; those with a known `once` are there already."""
    rows = [
        {
            "task": task_seq,
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
        connection.execute(insert(events).on_conflict_do_nothing(index_elements=["task", "once"]), rows)


def last_place() -> sa.ScalarSelect[int]:
    """The place behind all tasks of the queue."""
    other = tasks.alias()
    return sa.select(sa.func.coalesce(sa.func.max(other.c.place), 0) + 1).scalar_subquery()
