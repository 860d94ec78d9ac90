"""Who runs a job: leases with a heartbeat and a fencing token.

To claim a job adds 1 to its token, and every write of the holder names the token that it was
given: a runner that was stalled, and is late, changes nothing any more. Whether a lease is dead
is not read off a clock, which may be moved: another runner takes a job over once it has watched
the lease itself for so long, by its own monotonic clock, that a living holder would have renewed
it. Should two runners take each other for dead all the same, the token and the lock of the run
folder still let only one process train.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from strop.errors import Conflict
from strop.jobs.job import Job, NewEvent
from strop.jobs.queue import JobQueue, add_events, to_job
from strop.jobs.states import TRANSITIONS, JobStatus
from strop.store.tables import events, jobs

_OPEN = (JobStatus.VALIDATING_FILES, JobStatus.QUEUED, JobStatus.RUNNING)


class LeaseLost(Conflict):
    """The job is another runner's by now, or a client's: nothing was written."""

    code = "lease_lost"


class WishChanged(Conflict):
    """A client asked for something else in between: nothing was written; decide anew."""

    code = "wish_changed"


class Leases:
    """The jobs as one runner sees them."""

    def __init__(self, queue: JobQueue, owner: str, duration_s: float) -> None:
        """`owner` names whoever holds the data folder: what it held before it was started anew is its own."""
        self._queue = queue
        self._database = queue.database
        self.owner = owner
        self._duration_s = duration_s

    def open_jobs(self) -> list[Job]:
        """Jobs that somebody must work on, in the order of the queue."""
        query = sa.select(jobs).where(jobs.c.status.in_(_OPEN)).order_by(jobs.c.queued_seq, jobs.c.seq)
        with self._database.read() as connection:
            return [to_job(row) for row in connection.execute(query).mappings()]

    def now(self) -> float:
        """The time as people see it."""
        return self._queue.clock()

    def claim(self, job: Job, told: Sequence[NewEvent] = (), fence: int = 0, **values: Any) -> Job | None:
        """Take a job as it was seen; None when somebody was faster. `values` are written along.

        Its new token is also above `fence`, that of its run folder.
        """
        token = max(job.token, fence) + 1
        unchanged = sa.and_(jobs.c.status == job.status, _same_wish(job))
        return self._write(
            job,
            unchanged,
            told,
            {**values, "token": token, "lease_owner": self.owner, "lease_expires_at": self._expiry()},
        )

    def beat(self, job: Job) -> None:
        """Show that the holder lives. Raises LeaseLost."""
        values = {"lease_expires_at": self._expiry()}
        if self._write(job, self._held(), (), values, durable=False) is None:
            raise _lost(job)

    def change(self, job: Job, told: Sequence[NewEvent] = (), **values: Any) -> Job:
        """Write as the holder, and tell of it. Raises LeaseLost."""
        changed = self._write(job, self._held(), told, values)
        if changed is None:
            raise _lost(job)
        return changed

    def settle(self, job: Job, status: JobStatus, told: Sequence[NewEvent] = (), **values: Any) -> Job:
        """Bring the job into a status in which nobody holds it, and its wishes with it.

        Raises LeaseLost; WishChanged where a client has asked for something since `job` was read:
        what was acknowledged to it must not be lost.
        """
        values = {"wanted": None, "lease_owner": None, "lease_expires_at": None, **values, "status": status}
        if status.finished:
            values["finished_at"] = self._queue.clock()
        settled = self._write(job, sa.and_(self._held(), _same_wish(job)), told, values)
        if settled is None:
            self.beat(job)  # raises LeaseLost if it is that
            raise WishChanged(f"job {job.id}: a client asked for something else")
        return settled

    def release(self, job: Job) -> None:
        """Give the job up as it is, for any runner to take at once. Nothing where the lease was lost."""
        self._write(job, self._held(), (), {"lease_owner": None, "lease_expires_at": None})

    def told(self, job: Job) -> tuple[int, frozenset[int]]:
        """What events told of: the newest step, -1 before the first, and the checkpoints."""
        query = sa.select(events.c.once).where(events.c.job == job.seq, events.c.once.is_not(None))
        with self._database.read() as connection:
            keys = [once.partition(":") for once in connection.scalars(query)]
        steps = [int(number) for kind, _, number in keys if kind == "step"]
        checkpoints = frozenset(int(number) for kind, _, number in keys if kind == "checkpoint")
        return max(steps, default=-1), checkpoints

    def _write(
        self, job: Job, condition: Any, told: Sequence[NewEvent], values: dict[str, Any], durable: bool = True
    ) -> Job | None:
        """Change the row if it still has the token, and the condition holds; None where not."""
        status = values.get("status", job.status)
        if status is not job.status and status not in TRANSITIONS[job.status]:
            raise ValueError(f"a job does not go from {job.status} to {status}")
        statement = jobs.update().where(jobs.c.seq == job.seq, jobs.c.token == job.token, condition)
        with self._database.write(durable) as connection:
            row = (
                connection.execute(statement.values(**{"token": job.token, **values}).returning(*jobs.c))
                .mappings()
                .one_or_none()
            )
            if row is None:
                return None
            add_events(connection, job.seq, told, self._queue.clock())
            return to_job(row)

    def _held(self) -> Any:
        return jobs.c.lease_owner == self.owner

    def _expiry(self) -> float:
        return self._queue.clock() + self._duration_s


def _same_wish(job: Job) -> Any:
    return jobs.c.wanted.is_not_distinct_from(job.wanted)


def _lost(job: Job) -> LeaseLost:
    return LeaseLost(f"job {job.id} is not held with token {job.token} any more")
