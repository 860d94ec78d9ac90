"""The queue as clients see it: order, wishes, pages, events. Over SQLite and PostgreSQL."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import sqlalchemy as sa
from job_cases import new_job

import stored_tasks
from strop.errors import ConfigError, Conflict, NotFound
from strop.jobs.job import JobQueue, clone
from strop.jobs.task import NewEvent, TaskStatus, event_seq
from strop.store.db import Database
from strop.store.tables import tasks


@pytest.fixture
def queue(database: Database) -> JobQueue:
    return JobQueue(database, clock=lambda: 1_000.5)


def become(queue: JobQueue, job_id: str, status: TaskStatus, **values: object) -> None:
    """Bring a job into a status that a runner would."""
    stored_tasks.become(queue.database, job_id, status=status, **values)


def messages(queue: JobQueue, job_id: str) -> list[str]:
    return [event.message for event in queue.events(job_id)]


# Creating and finding


def test_a_new_job_is_read_back_as_it_was_asked_for(queue: JobQueue) -> None:
    new = replace(new_job(suffix="mine", metadata={"team": "räum"}), validation_file="file-2")
    job = queue.create(new)
    assert job == queue.get(job.id)
    assert job.id.startswith("ftjob-")
    assert (job.status, job.requested, job.error, job.created_at) == (TaskStatus.VALIDATING_FILES, None, None, 1_000.5)
    assert job.config == new.config
    assert (job.training_file, job.validation_file, job.folder) == ("file-1", "file-2", f"runs/{job.id}")
    assert (job.suffix, job.metadata) == ("mine", {"team": "räum"})
    assert messages(queue, job.id) == ["Created fine-tuning job"]


@pytest.mark.parametrize("call", ["get", "resume", "events"])
def test_an_unknown_job_is_named(call: str, queue: JobQueue) -> None:
    with pytest.raises(NotFound, match="ftjob-none"):
        getattr(queue, call)("ftjob-none")


@pytest.mark.parametrize(
    ("model", "suffix", "name"),
    [
        ("smollm2-135m", None, "ft:smollm2-135m:strop::{}"),
        ("Qwen/Qwen3-0.6B", "json", "ft:Qwen3-0.6B:strop:json:{}"),
        ("/models/my:own/", "x", "ft:my-own:strop:x:{}"),
        ("tiny", "a/b: c", "ft:tiny:strop:a-b-c:{}"),
        ("ft:Qwen3-0.6B:strop:json:0123abcd:ckpt-step-4", "more", "ft:Qwen3-0.6B:strop:more:{}"),
    ],
)
def test_the_model_of_a_job_has_a_name_without_slashes(
    model: str, suffix: str | None, name: str, queue: JobQueue
) -> None:
    job = queue.create(new_job(model=model, suffix=suffix))
    assert job.model_name == name.format(job.id[len("ftjob-") :][:8])
    assert queue.by_model_name(job.model_name) == job
    assert queue.by_model_name(f"ft:other:strop::{job.id[len('ftjob-') :][:8]}") is None
    assert queue.by_model_name("smollm2-135m") is None


def test_a_job_is_found_by_its_model_and_its_run(queue: JobQueue) -> None:
    job = queue.create(new_job())
    assert queue.by_model("ft:a:strop::1") is None
    become(queue, job.id, TaskStatus.SUCCEEDED, fine_tuned_model="ft:a:strop::1", run_id="run_1")
    assert [found and found.id for found in (queue.by_model("ft:a:strop::1"), queue.by_run("run_1"))] == [job.id] * 2


# Order


def test_jobs_are_listed_newest_first_page_by_page(queue: JobQueue) -> None:
    made = [queue.create(new_job(str(number))).id for number in range(5)]
    first = queue.list(limit=3)
    second = queue.list(limit=3, after=first[-1].id)
    assert [job.id for job in (*first, *second)] == made[::-1]
    with pytest.raises(NotFound, match="ftjob-none"):
        queue.list(after="ftjob-none")


def test_a_list_holds_only_what_was_asked_for(queue: JobQueue) -> None:
    made = [queue.create(new_job()).id for _ in range(3)]
    become(queue, made[1], TaskStatus.RUNNING)
    assert [job.id for job in queue.list(status=[TaskStatus.RUNNING])] == [made[1]]


def test_the_position_counts_the_jobs_ahead(queue: JobQueue) -> None:
    made = [queue.create(new_job()).id for _ in range(3)]
    for job_id in made:
        become(queue, job_id, TaskStatus.QUEUED)
    assert [queue.position(queue.get(job_id)) for job_id in made] == [1, 2, 3]
    become(queue, made[0], TaskStatus.RUNNING)
    assert [queue.position(queue.get(job_id)) for job_id in made] == [None, 1, 2]


def test_a_resumed_job_goes_to_the_end_of_the_queue(queue: JobQueue) -> None:
    first, second = (queue.create(new_job()).id for _ in range(2))
    for job_id in (first, second):
        become(queue, job_id, TaskStatus.QUEUED)
    assert queue.request(first, "pause").status is TaskStatus.PAUSED
    assert queue.resume(first).status is TaskStatus.QUEUED
    assert [queue.position(queue.get(job_id)) for job_id in (first, second)] == [2, 1]
    assert messages(queue, first)[1:] == ["Job paused", "Job resumed: waiting for its turn"]


def test_jobs_created_at_once_all_get_a_place_of_their_own(queue: JobQueue) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: queue.create(new_job()), range(16)))
    assert sorted(job.place for job in made) == list(range(1, 17))


# Wishes


@pytest.mark.parametrize("status", [TaskStatus.VALIDATING_FILES, TaskStatus.QUEUED, TaskStatus.PAUSED])
def test_a_job_that_nothing_trains_is_cancelled_at_once(status: TaskStatus, queue: JobQueue) -> None:
    job = queue.create(new_job())
    become(queue, job.id, status)
    cancelled = queue.request(job.id, "cancel")
    assert (cancelled.status, cancelled.requested, cancelled.finished_at) == (TaskStatus.CANCELLED, None, 1_000.5)
    assert cancelled.token == job.token + 1  # whoever validates its files has lost it


@pytest.mark.parametrize("wanted", ["pause", "cancel"])
def test_a_running_job_keeps_the_wish_until_its_process_has_ended(wanted: str, queue: JobQueue) -> None:
    job = queue.create(new_job())
    become(queue, job.id, TaskStatus.RUNNING)
    asked = queue.request(job.id, wanted)  # type: ignore[arg-type]
    assert (asked.status, asked.requested) == (TaskStatus.RUNNING, wanted)
    with pytest.raises(Conflict, match=f"is asked to {wanted}"):
        queue.resume(job.id)


def test_cancelling_goes_before_pausing(queue: JobQueue) -> None:
    job = queue.create(new_job())
    become(queue, job.id, TaskStatus.RUNNING)
    wishes = [queue.request(job.id, wanted).requested for wanted in ("pause", "cancel", "pause")]
    assert wishes == ["pause", "cancel", "cancel"]


@pytest.mark.parametrize("wanted", ["pause", "cancel"])
def test_asking_twice_is_asking_once(wanted: str, queue: JobQueue) -> None:
    job = queue.create(new_job())
    become(queue, job.id, TaskStatus.QUEUED)
    first, second = (queue.request(job.id, wanted) for _ in range(2))  # type: ignore[arg-type]
    assert first == second
    assert len(messages(queue, job.id)) == 2


@pytest.mark.parametrize("status", [TaskStatus.SUCCEEDED, TaskStatus.FAILED, TaskStatus.CANCELLED])
def test_a_job_that_has_ended_cannot_be_paused(status: TaskStatus, queue: JobQueue) -> None:
    job = queue.create(new_job())
    become(queue, job.id, status)
    with pytest.raises(Conflict, match=f"is {status} and cannot be paused"):
        queue.request(job.id, "pause")


@pytest.mark.parametrize("status", [TaskStatus.SUCCEEDED, TaskStatus.CANCELLED])
def test_a_job_that_is_over_cannot_be_resumed(status: TaskStatus, queue: JobQueue) -> None:
    job = queue.create(new_job())
    become(queue, job.id, status)
    with pytest.raises(Conflict, match="clone it"):
        queue.resume(job.id)


@pytest.mark.parametrize(
    ("started_at", "goal"), [(None, TaskStatus.VALIDATING_FILES), (900.0, TaskStatus.QUEUED)], ids=["never", "trained"]
)
def test_a_failed_job_is_resumed_from_where_it_failed(
    started_at: float | None, goal: TaskStatus, queue: JobQueue
) -> None:
    job = queue.create(new_job())
    failed = {"reason": "no", "error_code": "invalid_data", "finished_at": 950.0, "restarts": 3}
    become(queue, job.id, TaskStatus.FAILED, started_at=started_at, **failed)
    assert queue.get(job.id).error == {"code": "invalid_data", "message": "no", "param": None}
    resumed = queue.resume(job.id)
    assert (resumed.status, resumed.reason, resumed.finished_at, resumed.restarts) == (goal, None, None, 0)
    assert resumed.error is None


# Events


def test_events_are_read_forwards_and_backwards(queue: JobQueue) -> None:
    job = queue.create(new_job())
    for number in range(4):
        queue.event(job.id, NewEvent(str(number), data={"step": number}))
    forwards = queue.events(job.id)
    assert [event.message for event in forwards] == ["Created fine-tuning job", "0", "1", "2", "3"]
    assert forwards[1].data == {"step": 0}
    rest = queue.events(job.id, after_seq=forwards[2].seq)
    assert [event.message for event in rest] == ["2", "3"]
    page = queue.latest_events(job.id, before_seq=event_seq(forwards[3].id), limit=2)
    assert [event.message for event in page] == ["1", "0"]


def test_an_event_with_a_key_is_recorded_once_for_each_job(queue: JobQueue) -> None:
    made = [queue.create(new_job()).id for _ in range(2)]
    for job_id in made * 2:
        queue.event(job_id, NewEvent("step 1", once="step:1"))
    assert [messages(queue, job_id) for job_id in made] == [["Created fine-tuning job", "step 1"]] * 2


@pytest.mark.parametrize("text", ["ftevent-1", "ftevent-" + "g" * 24, ""])
def test_what_is_no_id_of_an_event_is_refused(text: str) -> None:
    with pytest.raises(NotFound):
        event_seq(text)


def test_events_go_with_their_job(queue: JobQueue) -> None:
    job = queue.create(new_job())
    with queue.database.write() as connection:
        connection.execute(sa.delete(tasks).where(tasks.c.id == job.id))
        assert connection.scalar(sa.text("SELECT count(*) FROM events")) == 0


# Clones


def test_a_clone_is_the_same_job_with_changes(queue: JobQueue) -> None:
    job = queue.create(new_job(suffix="mine"))
    new = clone(job, {"train": {"learning_rate": 1e-5}}, name="again")
    assert new.config.train == job.config.train.model_copy(update={"learning_rate": 1e-5})
    assert new.config.rewards == job.config.rewards
    assert (new.name, new.request, new.training_file) == ("again", {"suffix": "mine"}, "file-1")
    assert queue.create(new).id != job.id


def test_a_clone_with_a_wrong_change_is_refused_by_its_key(queue: JobQueue) -> None:
    job = queue.create(new_job())
    with pytest.raises(ConfigError, match="did you mean 'learning_rate'") as caught:
        clone(job, {"train": {"learning_rat": 1e-5}})
    assert caught.value.param == "train.learning_rat"


def test_only_a_finished_job_is_deleted_with_its_events(queue: JobQueue) -> None:
    job, other = queue.create(new_job()), queue.create(new_job())
    with pytest.raises(Conflict, match="cancel it first"):
        queue.delete(job.id)
    queue.request(job.id, "cancel")
    queue.delete(job.id)
    with pytest.raises(NotFound):
        queue.get(job.id)
    assert [found.id for found in queue.list()] == [other.id]
    assert messages(queue, other.id) == ["Created fine-tuning job"]
