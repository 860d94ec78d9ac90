"""Evaluations that run: real processes without a model, killed, cancelled, adopted."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from evaluation_cases import ReapingLauncher, ended, launches, new_evaluation, plan, running, supervisor
from job_cases import until

import stored_tasks
from strop.errors import NotFound, StropError, Unavailable
from strop.jobs.evaluations import EvaluationQueue
from strop.jobs.leases import Leases
from strop.jobs.task import Task
from strop.store.datafolder import DataFolder
from strop.store.db import Database, open_database
from strop.store.queries.evaluations import evaluation_rows_page


@pytest.fixture
def queue(database: Database, tmp_path: Path) -> EvaluationQueue:
    return EvaluationQueue(database, DataFolder.open(tmp_path / "data"))


@pytest.fixture
def sqlite_queue(tmp_path: Path) -> EvaluationQueue:
    return EvaluationQueue(open_database(None, tmp_path), DataFolder.open(tmp_path / "data"))


@pytest.fixture(autouse=True)
def no_process_is_left() -> Iterator[None]:
    yield
    ReapingLauncher.reap()


def data_of(tmp_path: Path) -> DataFolder:
    return DataFolder.open(tmp_path / "data")


def rows(queue: EvaluationQueue, evaluation_id: str) -> list[str]:
    with queue.database.read() as connection:
        return [str(row["row"]) for row in evaluation_rows_page(connection, evaluation_id)]


def test_an_evaluation_runs_to_its_end_and_its_rows_are_in_the_database(queue: EvaluationQueue, tmp_path: Path) -> None:
    made = queue.create(new_evaluation())
    with running(queue, data_of(tmp_path), plan(tmp_path, rows=4)):
        done = ended(queue, made)
    assert (done.status, done.rows_done, done.rows_total, done.reason) == ("succeeded", 4, 4, None)
    assert done.metrics == {"metrics": {"reward": 0.5}, "report": {"rows": 4}}
    assert done.started_at is not None
    assert done.finished_at is not None
    with queue.database.read() as connection:
        first, *others = evaluation_rows_page(connection, made.id)
    assert len(others) == 3
    assert (first["row"], first["line"], first["prompt"][1]["content"]) == ("row-0", 1, "Question 0?")
    assert (first["reward"], first["passed"], first["samples"], first["components"]) == (0.5, 1, 2, {"exact": 0.5})
    assert [line["turns"][0]["message"]["content"] for line in first["rollouts"]] == ["Answer 0.", "Answer 1."]


def test_one_runs_at_a_time_in_the_order_of_the_queue(sqlite_queue: EvaluationQueue, tmp_path: Path) -> None:
    queue = sqlite_queue
    first, second = queue.create(new_evaluation("first")), queue.create(new_evaluation("second"))
    with running(queue, data_of(tmp_path), plan(tmp_path, ends=[{"after": 2, "how": "hang"}])) as runner:
        until(lambda: queue.get(first.id).rows_done == 2)
        runner.wake()
        assert queue.get(second.id).status == "queued"
        queue.cancel(first.id)
        ended(queue, first)
        until(lambda: queue.get(second.id).rows_done == 2)
        queue.cancel(second.id)
        ended(queue, second)


def test_a_killed_process_is_started_again_and_no_row_is_lost_or_done_twice(
    queue: EvaluationQueue, tmp_path: Path
) -> None:
    made = queue.create(new_evaluation())
    with running(
        queue,
        data_of(tmp_path),
        plan(tmp_path, rows=5, ends=[{"after": 2, "how": "kill"}, {"after": 4, "how": "kill"}]),
    ):
        done = ended(queue, made)
    assert (done.status, done.restarts, len(launches(queue, made))) == ("succeeded", 2, 3)
    assert rows(queue, made.id) == [f"row-{number}" for number in range(5)]
    assert len(queue.folder(made).rollouts_file.read_text().splitlines()) == 10


def test_a_process_that_ends_again_and_again_is_given_up(sqlite_queue: EvaluationQueue, tmp_path: Path) -> None:
    queue = sqlite_queue
    made = queue.create(new_evaluation())
    with running(queue, data_of(tmp_path), plan(tmp_path, ends=[{"after": 1, "how": "kill"}] * 9)):
        done = ended(queue, made)
        assert (done.status, len(launches(queue, made))) == ("failed", 4)
        assert "Given up after 3 restarts" in str(done.reason)
        assert rows(queue, made.id) == ["row-0"]
        plan(tmp_path)
        queue.resume(made.id)
        assert ended(queue, made).status == "succeeded"


def test_a_failure_is_told_and_not_tried_again(sqlite_queue: EvaluationQueue, tmp_path: Path) -> None:
    queue = sqlite_queue
    made = queue.create(new_evaluation())
    with running(
        queue, data_of(tmp_path), plan(tmp_path, ends=[{"after": 3, "how": "fail", "message": "check the key"}])
    ):
        done = ended(queue, made)
    assert (done.status, done.reason, done.rows_done, done.metrics) == ("failed", "check the key", 3, None)
    assert len(launches(queue, made)) == 1


@pytest.mark.parametrize("deaf", [False, True])
def test_a_cancelled_one_ends_even_if_it_does_not_listen(
    sqlite_queue: EvaluationQueue, tmp_path: Path, deaf: bool
) -> None:
    queue = sqlite_queue
    made = queue.create(new_evaluation())
    with running(queue, data_of(tmp_path), plan(tmp_path, ends=[{"after": 2, "how": "hang", "deaf": deaf}])):
        until(lambda: queue.get(made.id).rows_done == 2)
        pid = queue.get(made.id).pid
        assert queue.cancel(made.id).status == "cancelled"
        done = ended(queue, made)
    assert (done.status, done.rows_done) == ("cancelled", 2)
    assert pid is not None
    assert not psutil.pid_exists(pid)


def test_a_living_process_is_adopted_by_the_next_server(queue: EvaluationQueue, tmp_path: Path) -> None:
    made = queue.create(new_evaluation())
    command = plan(tmp_path, rows=6, ends=[{"after": 3, "how": "hang"}])
    with running(queue, data_of(tmp_path), command):
        until(lambda: queue.get(made.id).rows_done == 3)
    pid = queue.get(made.id).pid
    assert pid is not None
    assert psutil.pid_exists(pid)
    with running(queue, data_of(tmp_path), command):
        os.kill(pid, signal.SIGTERM)  # it pauses, and another one goes on
        done = ended(queue, made)
    assert (done.status, done.restarts, done.rows_done) == ("succeeded", 0, 6)
    assert len(launches(queue, made)) == 2
    assert len(rows(queue, made.id)) == 6


def test_one_that_ended_while_no_server_ran_is_taken_in(sqlite_queue: EvaluationQueue, tmp_path: Path) -> None:
    queue = sqlite_queue
    made = queue.create(new_evaluation())
    command = plan(tmp_path, rows=5, ends=[{"after": 2, "how": "hang"}])
    runner = supervisor(queue, data_of(tmp_path), command)
    runner.tick()
    until(lambda: len(launches(queue, made)) == 1)
    pid = queue.get(made.id).pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    with running(queue, data_of(tmp_path), command):
        done = ended(queue, made)
    assert (done.status, done.restarts) == ("succeeded", 1)
    assert len(rows(queue, made.id)) == 5


def test_one_that_asks_this_server_is_stopped_with_it_and_goes_on_with_the_next(
    sqlite_queue: EvaluationQueue, tmp_path: Path
) -> None:
    queue = sqlite_queue
    made = queue.create(new_evaluation(kind="deployment", name="helper", socket="../../engine.sock"))
    command = plan(tmp_path, ends=[{"after": 1, "how": "hang"}])
    with running(queue, data_of(tmp_path), command):
        until(lambda: queue.get(made.id).rows_done == 1)
    until(lambda: queue.folder(made).status()["state"] == "paused")
    with running(queue, data_of(tmp_path), command):
        assert ended(queue, made).restarts == 0


class Gate:
    """Says in turn what becomes of a deployment."""

    def __init__(self, *answers: bool | StropError) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    def __call__(self, name: str) -> bool:
        self.asked.append(name)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, StropError):
            raise answer
        return answer


def test_a_deployment_is_loaded_before_it_is_asked(sqlite_queue: EvaluationQueue, tmp_path: Path) -> None:
    queue, gate = sqlite_queue, Gate(False, False, Unavailable("the model process is starting"), True)
    made = queue.create(new_evaluation(kind="deployment", name="helper", socket="../../engine.sock"))
    with running(queue, data_of(tmp_path), plan(tmp_path), ready=gate):
        done = ended(queue, made)
    assert (done.status, done.reason) == ("succeeded", None)
    assert gate.asked == ["helper"] * 4


def test_one_that_is_cancelled_while_it_waits_for_a_deployment_gives_way(
    sqlite_queue: EvaluationQueue, tmp_path: Path
) -> None:
    queue, gate = sqlite_queue, Gate(False)
    made = queue.create(new_evaluation(kind="deployment", name="helper", socket="../../engine.sock"))
    other = queue.create(new_evaluation())
    with running(queue, data_of(tmp_path), plan(tmp_path), ready=gate):
        until(lambda: len(gate.asked) > 2)
        assert queue.get(other.id).status == "queued"
        queue.cancel(made.id)
        assert ended(queue, other).status == "succeeded"
    assert queue.get(made.id).status == "cancelled"


def test_what_a_client_cancelled_is_not_begun_all_the_same(
    sqlite_queue: EvaluationQueue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = sqlite_queue
    made = queue.create(new_evaluation())

    runner = supervisor(queue, data_of(tmp_path), plan(tmp_path))

    def look_and_be_slow(leases: Leases) -> list[Task]:
        """A client cancels just after the supervisor has looked."""
        found = look(leases)
        queue.cancel(made.id)
        return found

    look = Leases.open_tasks
    monkeypatch.setattr(Leases, "open_tasks", look_and_be_slow)
    runner.tick()
    assert queue.get(made.id).status == "cancelled"
    assert launches(queue, made) == []


def test_a_process_that_a_server_started_and_did_not_write_down_is_found(
    sqlite_queue: EvaluationQueue, tmp_path: Path
) -> None:
    queue = sqlite_queue
    made = queue.create(new_evaluation())
    command = plan(tmp_path, ends=[{"after": 1, "how": "hang"}])
    supervisor(queue, data_of(tmp_path), command).tick()
    until(lambda: queue.folder(made).status().get("rows_done") == 1)
    stored_tasks.become(queue.database, made.id, pid=None)
    with running(queue, data_of(tmp_path), command):
        until(lambda: queue.get(made.id).rows_done == 1)
        queue.cancel(made.id)
        assert ended(queue, made).status == "cancelled"
    assert len(launches(queue, made)) == 1


def test_a_deployment_that_is_gone_is_a_failure(sqlite_queue: EvaluationQueue, tmp_path: Path) -> None:
    queue, gate = sqlite_queue, Gate(NotFound("no deployment 'helper'"))
    made = queue.create(new_evaluation(kind="deployment", name="helper", socket="../../engine.sock"))
    with running(queue, data_of(tmp_path), plan(tmp_path), ready=gate):
        done = ended(queue, made)
    assert (done.status, done.reason, launches(queue, made)) == ("failed", "no deployment 'helper'", [])


def test_secrets_reach_only_the_process_that_names_them(sqlite_queue: EvaluationQueue, tmp_path: Path) -> None:
    queue = sqlite_queue
    plain = queue.create(new_evaluation())
    remote = queue.create(new_evaluation(kind="remote", base_url="https://host/v1", api_key_env="SOME_TOKEN"))
    with running(queue, data_of(tmp_path), plan(tmp_path), secrets={"SOME_TOKEN": "sk-1"}):
        for made in (plain, remote):
            assert ended(queue, made).status == "succeeded"
    assert [line["secret"] for line in launches(queue, plain)] == [None]
    assert [line["secret"] for line in launches(queue, remote)] == ["sk-1"]


def test_a_secret_that_is_not_there_fails_with_its_name(
    sqlite_queue: EvaluationQueue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_TOKEN", "of the server itself")
    queue = sqlite_queue
    made = queue.create(new_evaluation(kind="remote", base_url="https://host/v1", api_key_env="SOME_TOKEN"))
    with running(queue, data_of(tmp_path), plan(tmp_path)):
        done = ended(queue, made)
    assert done.status == "failed"
    assert "it needs SOME_TOKEN: store it as a secret" in str(done.reason)
