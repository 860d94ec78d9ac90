"""Servers and training processes killed at any moment: nothing acknowledged is lost, nothing twice.

The server is a process of its own, see job_server.py; what trains has no model, see trainer.py.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from job_cases import make_inputs, stub_command, until
from trainer import metrics_of

from strop.errors import ServerError
from strop.jobs.job import Job, JobQueue
from strop.jobs.task import TaskStatus
from strop.store.datafolder import DataFolder
from strop.store.db import Database, open_database
from strop.store.rundir import RunDir


class Site:
    """A data folder, the server process over it, and a look at its database from outside."""

    def __init__(self, folder: DataFolder, url: str, **plan: Any) -> None:
        self.folder = folder
        make_inputs(folder)
        self._settings = {"url": url, "command": stub_command(folder, **plan)}
        self._database: Database = open_database(url, folder.path)
        self.queue = JobQueue(self._database)  # for reading only
        self.server: subprocess.Popen[str] | None = None

    def serve(self, **dies: int) -> None:
        """Start the server. It is killed at the moments that `dies` names."""
        script = str(Path(__file__).with_name("job_server.py"))
        settings = json.dumps({**self._settings, "dies": dies})
        self.server = subprocess.Popen(
            [sys.executable, script, str(self.folder.path), settings],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.server.stdout is not None
        assert self.server.stdout.readline() == "ready\n"

    def ask(self, words: str) -> str:
        """What the server answers a client."""
        assert self.server is not None and self.server.stdin is not None and self.server.stdout is not None
        self.server.stdin.write(f"{words}\n")
        self.server.stdin.flush()
        return self.server.stdout.readline().strip()

    def end_server(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Signal the server and wait until it is gone."""
        assert self.server is not None
        self.server.send_signal(number)
        self.wait_for_death()

    def wait_for_death(self) -> int:
        """Until the server is gone; its exit status."""
        assert self.server is not None
        code = self.server.wait(60)
        for stream in (self.server.stdin, self.server.stdout):
            assert stream is not None
            with suppress(BrokenPipeError):
                stream.close()
        self.server = None
        return code

    def run_of(self, job: Job) -> RunDir:
        return RunDir(self.folder.found(job.folder))

    def launches(self, job: Job) -> list[list[str]]:
        """Number and token of each process that got the lock."""
        file = self.run_of(job).path / "launches"
        return [line.split() for line in file.read_text().splitlines()] if file.exists() else []

    def close(self) -> None:
        if self.server is not None:
            self.end_server()
        for job in self.queue.list():
            if pid := self.run_of(job).process_id():
                os.kill(pid, signal.SIGKILL)
        self._database.close()


@pytest.fixture
def plan() -> dict[str, Any]:
    """What the trainer does, where a test does not say otherwise."""
    return {"steps": 8, "step_s": 0.02}


@pytest.fixture
def site(tmp_path: Path, plan: dict[str, Any]) -> Iterator[Site]:
    folder = DataFolder.open(tmp_path / "data")
    made = Site(folder, f"sqlite:///{folder.path / 'strop.db'}", **plan)
    yield made
    made.close()


@pytest.fixture
def both(tmp_path: Path, plan: dict[str, Any], database_url: str) -> Iterator[Site]:
    """The same over SQLite and PostgreSQL."""
    made = Site(DataFolder.open(tmp_path / "data"), database_url, **plan)
    yield made
    made.close()


class LockWatch(threading.Thread):
    """Looks again and again who holds the locks of runs; more than one holder is remembered."""

    def __init__(self, folder: DataFolder) -> None:
        super().__init__(daemon=True)
        self._folder = folder
        self._done = threading.Event()
        self.looks = 0
        self.holders: set[str] = set()
        self.crowds: list[list[str]] = []

    def run(self) -> None:
        """Until `stop`."""
        while not self._done.wait(0.005):
            inodes = {str(file.stat().st_ino) for file in self._folder.runs.glob("*/.lock")}
            locks = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
            exclusive = [line for line in locks if line[1] == "FLOCK" and line[3] == "WRITE"]
            held = [line[4] for line in exclusive if line[5].split(":")[2] in inodes]
            self.looks += 1
            self.holders |= set(held)
            if len(held) > 1:
                self.crowds.append(held)

    def stop(self) -> None:
        self._done.set()
        self.join()


def assert_whole(site: Site, job_id: str, steps: int) -> None:
    """The job succeeded; files and events tell of each step once, with the right numbers."""
    job = site.queue.get(job_id)
    assert (job.status, job.fine_tuned_model) == (TaskStatus.SUCCEEDED, job.model_name)
    expected = [(step, metrics_of(17, step)["reward"]) for step in range(1, steps + 1)]
    assert [(line["step"], line["reward"]) for line in site.run_of(job).metrics()] == expected
    assert [line["step"] for line in site.run_of(job).read_rollouts()] == list(range(1, steps + 1))
    events = site.queue.events(job_id, limit=10_000)
    reported = [event.data for event in events if event.type == "metrics" and event.data]
    assert [(data["step"], data["train_mean_reward"]) for data in reported] == expected
    messages = Counter(event.message for event in events if event.level == "info" and event.message != "Job goes on")
    assert set(messages.values()) == {1}
    last = f"Checkpoint created at step {steps} with Snapshot ID: {job.model_name}:ckpt-step-{steps}"
    assert {"Created fine-tuning job", "Job started", last, "The job has successfully completed"} <= messages.keys()
    # Tokens only grow: none of an older one trained after a newer one.
    tokens = [int(token) for _, token in site.launches(job)]
    assert tokens == sorted(tokens)


@pytest.mark.parametrize("plan", [{"steps": 40, "step_s": 0.03, "save_every": 3}])
def test_a_job_survives_whatever_is_killed_whenever(both: Site) -> None:
    chance = random.Random(7)
    both.serve()
    job = both.queue.get(both.ask("create"))
    run = both.run_of(job)
    watch = LockWatch(both.folder)
    watch.start()
    victims = chance.sample(VICTIMS, 7 if both.queue.database.dialect == "sqlite" else 4)
    for step, victim in zip((0, 0, 2, 5, 9, 14, 20), victims, strict=False):
        while step and len(run.metrics()) <= step:
            time.sleep(0.01)
        time.sleep(chance.uniform(0.0, 0.1))
        trainer = run.process_id() if run.path.exists() else None
        if victim in ("trainer", "both") and trainer is not None:
            with suppress(ProcessLookupError):
                os.kill(trainer, signal.SIGKILL)
        if victim != "trainer":
            both.end_server(signal.SIGTERM if victim == "politely" else signal.SIGKILL)
            time.sleep(chance.uniform(0.0, 0.1))
            both.serve()
    until(lambda: both.queue.get(job.id).status.finished)
    watch.stop()
    assert_whole(both, job.id, 40)
    assert watch.crowds == []
    assert watch.looks > 20
    assert len(watch.holders) > 1


VICTIMS = ["server", "server", "trainer", "trainer", "both", "both", "politely"]


@pytest.mark.parametrize(
    "moment",
    [{"launching": 1}, {"launched": 1}, {"followed": 2}, {"followed": 12}],
    ids=["before-launch", "after-launch", "first-steps", "later-steps"],
)
def test_a_server_that_dies_between_files_and_database_loses_nothing(moment: dict[str, int], site: Site) -> None:
    site.serve(**moment)
    job_id = site.ask("create")
    assert site.wait_for_death() == -signal.SIGKILL
    site.serve()
    until(lambda: site.queue.get(job_id).status.finished)
    assert_whole(site, job_id, 8)
    assert len(site.launches(site.queue.get(job_id))) == 1


def test_what_a_server_has_acknowledged_is_still_so_after_it_was_killed(site: Site) -> None:
    site.serve()
    first, second = site.ask("create"), site.ask("create")
    site.ask(f"want {first} cancel")
    site.ask(f"want {second} pause")
    site.end_server()
    site.serve()
    until(lambda: site.queue.get(first).status is TaskStatus.CANCELLED)
    until(lambda: site.queue.get(second).status is TaskStatus.PAUSED)
    assert site.ask(f"resume {second}") in ("queued", "running")
    site.end_server()
    site.serve()
    until(lambda: site.queue.get(second).status.finished)
    assert_whole(site, second, 8)


@pytest.mark.parametrize("plan", [{"steps": 60, "step_s": 0.03}])
def test_a_process_trains_on_while_no_server_is_there(site: Site) -> None:
    site.serve()
    job = site.queue.get(site.ask("create"))
    run = site.run_of(job)
    until(lambda: run.metrics_file.exists() and run.metrics())
    site.end_server()
    done = len(run.metrics())
    until(lambda: len(run.metrics()) > done + 2)
    site.serve()
    until(lambda: site.queue.get(job.id).status.finished)
    assert_whole(site, job.id, 60)
    assert len(site.launches(job)) == 1


@pytest.mark.parametrize("plan", [{"steps": 30, "step_s": 0.01, "save_s": 0.1, "save_every": 3}])
def test_a_job_cancelled_while_a_checkpoint_is_saved_has_whole_checkpoints_only(site: Site) -> None:
    site.serve()
    job = site.queue.get(site.ask("create"))
    run = site.run_of(job)
    until(lambda: run.status_file.exists() and run.status().get("step") in (3, 6, 9, 12))
    site.ask(f"want {job.id} cancel")
    until(lambda: site.queue.get(job.id).status is TaskStatus.CANCELLED)
    assert not run.locked()
    assert list(run.checkpoints.glob(".tmp-*")) == []
    newest = run.checkpoint_status()["latest"]
    assert newest == run.status()["step"]


def test_a_second_server_on_the_folder_is_refused(site: Site) -> None:
    site.serve()
    assert site.server is not None
    with pytest.raises(ServerError, match=f"in use by process {site.server.pid}"), site.folder.lock():
        pass
