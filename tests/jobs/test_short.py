"""Short tasks: a client has a process do something, and waits for its result."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from job_cases import FixedSecrets, NoIngester, until

import stored_tasks
from strop.errors import ModelError, RewardError, Unavailable
from strop.jobs.kind import Kind, Tools
from strop.jobs.launcher import LocalLauncher
from strop.jobs.short import Lengths, LengthsQueue, SpecHandler, Trial, TrialQueue, purge, sweep
from strop.jobs.states import Limits
from strop.jobs.supervisor import Supervisor
from strop.jobs.task import Task
from strop.store.datafolder import DataFolder
from strop.store.db import Database
from strop.store.tables import tasks

QUICK = Limits(backoff_s=0.01, grace_s=0.2, interval_s=0.01)
ECHO = "import os; result = {**spec, 'secret': os.environ.get('JUDGE_KEY')}"
SPEC: dict[str, Any] = {"rewards": [{"name": "one", "source": "a.py:b", "env": ["JUDGE_KEY"]}], "seconds": 30}


def process(code: str) -> Sequence[str]:
    """A command that makes a result of a spec."""
    start = "import json, pathlib, sys\npath = pathlib.Path(sys.argv[1])"
    start += "\nspec = json.loads((path / 'spec.json').read_text())"
    end = "(path / 'result.json').write_text(json.dumps(result))"
    return (sys.executable, "-c", f"{start}\n{code}\n{end}")


@pytest.fixture
def folder(tmp_path: Path) -> DataFolder:
    return DataFolder.open(tmp_path / "data")


@contextmanager
def running(database: Database, folder: DataFolder, code: str, **secrets: str) -> Iterator[None]:
    """A supervisor of both kinds."""
    tools = Tools(database, folder, FixedSecrets(secrets), NoIngester())
    launcher = LocalLauncher(process(code))
    kinds: dict[str, Kind] = {"trial": Trial(tools, launcher), "lengths": Lengths(tools, launcher)}
    runner = Supervisor(tools, kinds, limits=QUICK)
    runner.start()
    try:
        yield
    finally:
        runner.close()


def known(database: Database) -> list[str]:
    with database.read() as connection:
        return list(connection.scalars(sa.select(tasks.c.id)))


def test_a_result_is_waited_for_and_nothing_is_left(database: Database, folder: DataFolder) -> None:
    with running(database, folder, "result = {'sum': spec['a'] + 1}"):
        assert LengthsQueue(database, folder).run({"a": 1}) == {"sum": 2}
    assert known(database) == []
    assert list(folder.tasks.iterdir()) == []


def test_only_the_process_of_a_trial_gets_the_secrets_that_its_rewards_name(
    database: Database, folder: DataFolder
) -> None:
    with running(database, folder, ECHO, JUDGE_KEY="hush"):
        assert TrialQueue(database, folder).run(SPEC)["secret"] == "hush"
        assert LengthsQueue(database, folder).run({})["secret"] is None


def test_a_secret_that_is_missing_is_named(database: Database, folder: DataFolder) -> None:
    with running(database, folder, ECHO), pytest.raises(RewardError, match="needs JUDGE_KEY"):
        TrialQueue(database, folder).run(SPEC)


def test_what_the_process_refuses_is_an_error_of_its_kind(database: Database, folder: DataFolder) -> None:
    code, message = "result = {'error': 'no tokenizer'}", "cannot be counted: no tokenizer"
    with running(database, folder, code), pytest.raises(ModelError, match=message):
        LengthsQueue(database, folder).run({})
    assert known(database) == []


def test_a_process_that_dies_is_an_error_with_its_last_words(database: Database, folder: DataFolder) -> None:
    with running(database, folder, "sys.exit('too hot')"), pytest.raises(ModelError, match="exit code 1: too hot"):
        LengthsQueue(database, folder).run({})


def test_a_trial_ends_with_its_time(database: Database, folder: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strop.jobs.short._GRACE_S", 0.2)
    code, message = "import time; time.sleep(600)", r"not done within 0\.3 s"
    with running(database, folder, code, JUDGE_KEY="x"), pytest.raises(RewardError, match=message):
        TrialQueue(database, folder).run({**SPEC, "seconds": 0.1})
    assert list(folder.tasks.iterdir()) == []


def test_a_task_whose_turn_does_not_come_is_given_up(
    database: Database, folder: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LengthsQueue, "patience_s", 0.1)
    with pytest.raises(Unavailable, match="another file"):
        LengthsQueue(database, folder).run({})  # nothing runs it
    assert known(database) == []


def test_nobody_waits_on_once_the_server_ends(database: Database, folder: DataFolder) -> None:
    queue = LengthsQueue(database, folder)
    threading.Timer(0.1, queue.close).start()
    with pytest.raises(Unavailable, match="the server is stopping"):
        queue.run({})  # nothing runs it
    assert known(database) == []


def test_several_clients_are_answered_each_with_its_own(database: Database, folder: DataFolder) -> None:
    found: dict[int, Any] = {}

    def ask(number: int) -> None:
        found[number] = LengthsQueue(database, folder).run({"a": number})["a"]

    with running(database, folder, ECHO):
        threads = [threading.Thread(target=ask, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert found == {0: 0, 1: 1, 2: 2}


def test_what_ended_long_ago_is_removed_and_a_running_task_is_not(database: Database, folder: DataFolder) -> None:
    stored_tasks.add_job(database, "old", "succeeded")
    stored_tasks.become(database, "old", kind="validation", folder="tasks/old", finished_at=10.0)
    (folder.tasks / "old").mkdir()
    stored_tasks.add_job(database, "young", "running")
    stored_tasks.become(database, "young", kind="trial", folder="tasks/young")
    (folder.tasks / "young").mkdir()
    (folder.tasks / "stray").mkdir()
    purge(database, folder, now=20.0, kept_s=5.0)
    sweep(database, folder)
    assert known(database) == ["young"]
    assert [path.name for path in folder.tasks.iterdir()] == ["young"]


def test_the_process_of_a_cancelled_task_is_stopped(database: Database, folder: DataFolder) -> None:
    queue = LengthsQueue(database, folder)
    errors: list[Exception] = []

    def ask() -> None:
        try:
            queue.run({})
        except ModelError as error:
            errors.append(error)

    with running(database, folder, "import time; time.sleep(600)"):
        thread = threading.Thread(target=ask)
        thread.start()
        (task,) = until(lambda: [found for found in queue.list() if found.pid])
        queue.request(task.id, "cancel")
        thread.join(60)
    assert len(errors) == 1
    assert known(database) == []


class Doubling:
    """A kind of its own, as whoever adds one would write it."""

    def __init__(self, tools: Tools) -> None:
        self.launcher = LocalLauncher(process("result = {'twice': 2 * spec['a']}"))
        self._tools = tools

    def open(self, task: Task) -> SpecHandler:
        return SpecHandler(self._tools, task, time_limit_s=60)


class DoublingQueue(LengthsQueue):
    kind = "doubling"


def test_a_new_kind_is_one_class_and_a_command(database: Database, folder: DataFolder) -> None:
    tools = Tools(database, folder, FixedSecrets(), NoIngester())
    runner = Supervisor(tools, {"doubling": Doubling(tools)}, limits=QUICK)
    runner.start()
    try:
        assert DoublingQueue(database, folder).run({"a": 4}) == {"twice": 8}
    finally:
        runner.close()
