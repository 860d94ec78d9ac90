"""Which server has a task: leases with a heartbeat and a fencing token.

To claim a task adds 1 to its token, and every write of the holder names the token that it was
given: a server that was stalled, and is late, changes nothing any more. Whether a lease is dead
is not read off a clock, which may be moved: another server takes a task over once it has watched
the lease itself for so long, by its own monotonic clock, that a living holder would have renewed
it. Should two servers take each other for dead all the same, the token and the lock of the task's
folder still let only one process work.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from strop.errors import Conflict
from strop.jobs.task import TRANSITIONS, NewEvent, Task, TaskStatus, add_events, to_task
from strop.store.db import Database
from strop.store.tables import tasks

Write = Callable[[Connection], object]
"""Writes more within the transaction that changes a task."""
_OPEN = (TaskStatus.QUEUED, TaskStatus.RUNNING)


class LeaseLost(Conflict):
    """Another server has taken the task, or a client changed it: nothing was written."""

    code = "lease_lost"


class RequestChanged(Conflict):
    """A client requested another action in between: nothing was written; decide again."""

    code = "request_changed"


class Leases:
    """The tasks of every kind as one server sees them."""

    def __init__(
        self, database: Database, owner: str, duration_s: float, clock: Callable[[], float] = time.time
    ) -> None:
        """`owner` identifies the holder of the data folder; it keeps its leases after a restart."""
        self._database = database
        self.owner = owner
        self._duration_s = duration_s
        self._clock = clock

    def open_tasks(self) -> list[Task]:
        """Tasks that need work, in the order of the queue."""
        query = sa.select(tasks).where(tasks.c.status.in_(_OPEN)).order_by(tasks.c.place, tasks.c.seq)
        with self._database.read() as connection:
            return [to_task(row) for row in connection.execute(query).mappings()]

    def now(self) -> float:
        """The time as people see it."""
        return self._clock()

    def claim(self, task: Task, events: Sequence[NewEvent] = (), fence: int = 0, **values: Any) -> Task | None:
        """Take a task as it was seen; None if another process was faster. `values` are written along.

        Its new token is also above `fence`, that of its folder.
        """
        unchanged = sa.and_(tasks.c.status == task.status, _same_request(task))
        lease = {"lease_owner": self.owner, "lease_expires_at": self._expiry()}
        return self._write(task, unchanged, {**values, **lease, "token": max(task.token, fence) + 1}, events)

    def beat(self, task: Task) -> None:
        """Show that the holder lives. Raises LeaseLost."""
        if self._write(task, self._held(), {"lease_expires_at": self._expiry()}, durable=False) is None:
            raise _lost(task)

    def change(
        self,
        task: Task,
        events: Sequence[NewEvent] = (),
        also: Write | None = None,
        durable: bool = True,
        **values: Any,
    ) -> Task:
        """Write as the holder, and record events. Raises LeaseLost."""
        changed = self._write(task, self._held(), values, events, also, durable)
        if changed is None:
            raise _lost(task)
        return changed

    def explain(self, task: Task, reason: str) -> None:
        """Say why a waiting task waits, also as an event, once. Nothing where it was changed in between."""
        unchanged = sa.and_(tasks.c.status == TaskStatus.QUEUED, _same_request(task))
        self._write(task, unchanged, {"reason": reason}, [NewEvent(reason, once=f"waits:{task.token}")])

    def settle(
        self,
        task: Task,
        status: TaskStatus,
        events: Sequence[NewEvent] = (),
        also: Write | None = None,
        **values: Any,
    ) -> Task:
        """Set a status without a holder and without a requested action.

        Raises LeaseLost; RequestChanged where a client has requested something since `task` was
        read: what was acknowledged to it must not be lost.
        """
        values = {"requested": None, "lease_owner": None, "lease_expires_at": None, **values, "status": status}
        if status.finished:
            values["finished_at"] = self._clock()
        settled = self._write(task, sa.and_(self._held(), _same_request(task)), values, events, also)
        if settled is None:
            self.beat(task)  # raises LeaseLost if it is that
            raise RequestChanged(f"task {task.id}: a client requested something else")
        return settled

    def release(self, task: Task) -> None:
        """Release the task unchanged, for any server to take. No effect if the lease was lost."""
        self._write(task, self._held(), {"lease_owner": None, "lease_expires_at": None})

    def _write(
        self,
        task: Task,
        condition: Any,
        values: dict[str, Any],
        events: Sequence[NewEvent] = (),
        also: Write | None = None,
        durable: bool = True,
    ) -> Task | None:
        """Change the row if its token and the condition still hold; None otherwise."""
        status = values.get("status", task.status)
        if status is not task.status and status not in TRANSITIONS[task.status]:
            raise ValueError(f"a task does not go from {task.status} to {status}")
        statement = tasks.update().where(tasks.c.seq == task.seq, tasks.c.token == task.token, condition)
        with self._database.write(durable) as connection:
            changed = connection.execute(statement.values(**{"token": task.token, **values}).returning(*tasks.c))
            row = changed.mappings().one_or_none()
            if row is None:
                return None
            add_events(connection, task.seq, events, self._clock())
            if also is not None:
                also(connection)
            return to_task(row)

    def _held(self) -> Any:
        return tasks.c.lease_owner == self.owner

    def _expiry(self) -> float:
        return self._clock() + self._duration_s


def _same_request(task: Task) -> Any:
    return tasks.c.requested.is_not_distinct_from(task.requested)


def _lost(task: Task) -> LeaseLost:
    return LeaseLost(f"task {task.id} is not held with token {task.token} any more")
