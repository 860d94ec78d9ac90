"""Leases: one holder at a time, and nothing written by one that is late. Over SQLite and PostgreSQL."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields

import pytest
from job_cases import new_job

from strop.jobs.job import JobQueue
from strop.jobs.leases import LeaseLost, Leases, RequestChanged
from strop.jobs.task import NewEvent, Task, TaskStatus
from strop.jobs.training import reported
from strop.store.db import Database


class Clock:
    """The time as people see it, moved at will."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def queue(database: Database, clock: Clock) -> JobQueue:
    return JobQueue(database, clock)


@pytest.fixture
def leases(queue: JobQueue) -> Leases:
    return Leases(queue.database, "one", 30.0, queue.clock)


def claimed(leases: Leases, job: Task) -> Task:
    found = leases.claim(job)
    assert found is not None
    return found


def running(queue: JobQueue, leases: Leases) -> Task:
    """A running job that `leases` holds."""
    job = claimed(leases, queue.create(new_job()))
    found = leases.claim(leases.settle(job, TaskStatus.QUEUED), status=TaskStatus.RUNNING)
    assert found is not None
    return found


def stored(queue: JobQueue, task: Task) -> Task:
    """What every task has, as it is now."""
    job = queue.get(task.id)
    return Task(**{field.name: getattr(job, field.name) for field in fields(Task)})


def messages(queue: JobQueue, job: Task) -> list[str]:
    return [event.message for event in queue.events(job.id)]


def test_each_claim_adds_one_to_the_token_and_names_the_holder(queue: JobQueue, leases: Leases) -> None:
    job = queue.create(new_job())
    first = claimed(leases, job)
    assert (first.token, first.lease_owner, first.lease_expires_at) == (1, "one", 1_030.0)
    second = claimed(Leases(queue.database, "two", 60.0, queue.clock), first)
    assert (second.token, second.lease_owner, second.lease_expires_at) == (2, "two", 1_060.0)


def test_a_token_is_above_the_fence_of_the_run_folder(queue: JobQueue, leases: Leases) -> None:
    # As after the database was brought back from a copy: the folder has seen later ones.
    found = leases.claim(queue.create(new_job()), fence=7)
    assert found is not None
    assert found.token == 8


def test_of_many_that_claim_what_they_saw_one_gets_it(queue: JobQueue) -> None:
    job = queue.create(new_job())
    with ThreadPoolExecutor(8) as pool:
        found = list(
            pool.map(lambda number: Leases(queue.database, str(number), 30.0, queue.clock).claim(job), range(16))
        )
    (winner,) = [job for job in found if job is not None]
    assert stored(queue, job) == winner
    assert winner.token == 1


def test_whoever_was_overtaken_writes_nothing(queue: JobQueue, leases: Leases) -> None:
    late = running(queue, leases)
    now = claimed(Leases(queue.database, "two", 30.0, queue.clock), late)
    told = [NewEvent("too late")]
    for write in (
        lambda: leases.beat(late),
        lambda: leases.change(late, told, reason="too late"),
        lambda: leases.settle(late, TaskStatus.FAILED, told),
    ):
        with pytest.raises(LeaseLost, match=f"{late.id} is not held with token 2"):
            write()
    leases.release(late)
    assert stored(queue, late) == now
    assert "too late" not in messages(queue, late)


def test_a_client_that_cancels_a_waiting_job_takes_it_from_its_holder(queue: JobQueue, leases: Leases) -> None:
    held = claimed(leases, queue.create(new_job()))
    queue.request(held.id, "cancel")
    with pytest.raises(LeaseLost):
        leases.settle(held, TaskStatus.QUEUED)
    assert queue.get(held.id).status is TaskStatus.CANCELLED


def test_a_wish_that_came_in_between_is_not_lost(queue: JobQueue, leases: Leases) -> None:
    held = running(queue, leases)
    queue.request(held.id, "cancel")
    with pytest.raises(RequestChanged):
        leases.settle(held, TaskStatus.SUCCEEDED, [NewEvent("done")])
    seen = queue.get(held.id)
    assert (seen.status, seen.requested) == (TaskStatus.RUNNING, "cancel")
    settled = leases.settle(seen, TaskStatus.CANCELLED)
    assert (settled.requested, settled.lease_owner, settled.finished_at) == (None, None, 1_000.0)
    assert "done" not in messages(queue, held)


def test_a_status_changes_together_with_the_event_that_tells_of_it(queue: JobQueue, leases: Leases) -> None:
    held = running(queue, leases)
    with pytest.raises(ValueError, match="does not go from running to queued"):
        leases.settle(held, TaskStatus.QUEUED, [NewEvent("back")])
    leases.settle(held, TaskStatus.PAUSED, [NewEvent("paused")])
    assert messages(queue, held) == ["Created fine-tuning job", "paused"]


def test_a_released_job_is_free_and_as_it_was(queue: JobQueue, leases: Leases) -> None:
    held = running(queue, leases)
    leases.release(held)
    found = queue.get(held.id)
    assert (found.lease_owner, found.lease_expires_at) == (None, None)
    assert (found.status, found.token) == (TaskStatus.RUNNING, held.token)


@pytest.mark.parametrize("hours", [-24, 24])
def test_a_holder_keeps_its_job_whatever_becomes_of_the_clock(
    hours: int, queue: JobQueue, leases: Leases, clock: Clock
) -> None:
    held = running(queue, leases)
    clock.now += hours * 3_600
    leases.beat(held)
    assert leases.change(held, reason="as before").token == held.token


def test_open_tasks_come_in_the_order_of_the_queue(queue: JobQueue, leases: Leases) -> None:
    made = [queue.create(new_job()).id for _ in range(3)]
    queue.request(made[0], "cancel")
    resumed, _ = [leases.settle(claimed(leases, queue.get(job)), TaskStatus.QUEUED) for job in made[1:]]
    queue.request(resumed.id, "pause")
    queue.resume(resumed.id)
    assert [task.id for task in leases.open_tasks() if task.kind == "training"] == [made[2], made[1]]


def test_what_events_told_of_is_remembered(queue: JobQueue, leases: Leases) -> None:
    held = running(queue, leases)
    assert reported(queue.database, held) == (-1, frozenset())
    told = [NewEvent("", once=key) for key in ("step:0", "step:9", "step:10", "checkpoint:2", "checkpoint:10")]
    leases.change(held, told)
    assert reported(queue.database, held) == (10, frozenset({2, 10}))
