"""The queue of evaluations: created, listed, cancelled, resumed, deleted, in both databases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from evaluation_cases import new_evaluation

import stored_tasks
from strop.errors import Conflict, NotFound
from strop.jobs.evaluations import EvaluationQueue
from strop.jobs.task import TaskStatus
from strop.store.datafolder import DataFolder
from strop.store.db import Database


@pytest.fixture
def queue(database: Database, tmp_path: Path) -> EvaluationQueue:
    ticks: Iterator[int] = iter(range(1000, 2000))
    return EvaluationQueue(database, DataFolder.open(tmp_path / "data"), clock=lambda: float(next(ticks)))


def test_a_new_evaluation_waits_and_has_its_folder(queue: EvaluationQueue) -> None:
    made = queue.create(new_evaluation("first"))
    assert made.id.startswith("eval_")
    assert (made.name, made.model, made.status, made.metrics) == ("first", "tiny", "queued", None)
    assert (made.samples, made.pass_threshold) == (2, 1.0)
    assert queue.folder(made).spec() == made.spec
    assert queue.get(made.id) == made


def test_lists_are_newest_first_and_go_on_behind_an_id(queue: EvaluationQueue) -> None:
    made = [queue.create(new_evaluation(str(number))) for number in range(3)]
    assert [found.name for found in queue.list()] == ["2", "1", "0"]
    assert [found.name for found in queue.list(limit=1, after=made[2].id)] == ["1"]
    queue.cancel(made[1].id)
    assert [found.name for found in queue.list(status=[TaskStatus.QUEUED])] == ["2", "0"]


def test_the_oldest_is_next_and_others_know_their_place(queue: EvaluationQueue) -> None:
    made = [queue.create(new_evaluation(str(number))) for number in range(3)]
    assert [queue.position(found) for found in made] == [1, 2, 3]
    assert queue.position(queue.cancel(made[0].id)) is None
    assert queue.position(made[1]) == 1


def test_cancelling_twice_is_no_fault_but_what_has_ended_stays(queue: EvaluationQueue) -> None:
    made = queue.create(new_evaluation())
    assert queue.cancel(made.id).status is TaskStatus.CANCELLED
    assert queue.cancel(made.id).finished_at is not None
    stored_tasks.become(queue.database, made.id, status="succeeded")
    with pytest.raises(Conflict, match="is succeeded and cannot be cancelled"):
        queue.cancel(made.id)


def test_what_was_cancelled_can_go_on(queue: EvaluationQueue) -> None:
    made = queue.create(new_evaluation())
    queue.cancel(made.id)
    again = queue.resume(made.id)
    assert (again.status, again.finished_at, again.restarts) == ("queued", None, 0)
    assert queue.resume(made.id) == again


def test_what_has_succeeded_is_not_done_again(queue: EvaluationQueue) -> None:
    made = queue.create(new_evaluation())
    stored_tasks.become(queue.database, made.id, status="succeeded")
    with pytest.raises(Conflict, match="create another one"):
        queue.resume(made.id)


def test_deleting_takes_the_folder_along_but_not_what_still_runs(queue: EvaluationQueue) -> None:
    made = queue.create(new_evaluation())
    with pytest.raises(Conflict, match="is queued; cancel it first"):
        queue.delete(made.id)
    queue.cancel(made.id)
    stored_tasks.become(queue.database, made.id, status="running", requested="cancel")
    with pytest.raises(Conflict, match="is being stopped"):
        queue.delete(made.id)
    stored_tasks.become(queue.database, made.id, status="cancelled", requested=None)
    queue.delete(made.id)
    assert not queue.folder(made).path.exists()
    with pytest.raises(NotFound, match=made.id):
        queue.get(made.id)


@pytest.mark.parametrize("act", ["get", "cancel", "resume", "delete"])
def test_an_unknown_id_is_named(queue: EvaluationQueue, act: str) -> None:
    with pytest.raises(NotFound, match="no evaluation 'eval_none'"):
        getattr(queue, act)("eval_none")


def test_folders_that_nobody_knows_are_swept(queue: EvaluationQueue) -> None:
    made = queue.create(new_evaluation())
    stray = queue.folder(made).path.parent / "eval_stray"
    stray.mkdir()
    queue.sweep()
    assert not stray.exists()
    assert queue.folder(made).path.exists()


def test_one_that_is_asked_to_cancel_is_shown_as_cancelled_while_its_process_is_stopped(queue: EvaluationQueue) -> None:
    made = queue.create(new_evaluation())
    stored_tasks.become(queue.database, made.id, status="running")
    assert queue.cancel(made.id).status is TaskStatus.CANCELLED
    assert [found.id for found in queue.list(status=[TaskStatus.CANCELLED])] == [made.id]
    assert queue.list(status=[TaskStatus.RUNNING]) == []
    with pytest.raises(Conflict, match="is being stopped"):
        queue.resume(made.id)
