"""Jobs with the real training process and a tiny model, taken in by the real ingester."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from job_cases import supervisor, until
from safetensors.torch import load_file

from models import save_tiny_model
from strop.config import RunConfig, parse_config
from strop.jobs.checking import CHECK
from strop.jobs.job import Job, JobQueue, NewJob, clone
from strop.jobs.launcher import LocalLauncher
from strop.jobs.states import Limits
from strop.jobs.supervisor import Supervisor
from strop.jobs.task import TaskStatus
from strop.store.datafolder import DataFolder
from strop.store.db import open_database
from strop.store.ingest import Ingester
from strop.store.rundir import RunDir
from strop.store.tables import rollouts, steps

STEPS = 5
REWARD = """
def grade(sample, item):
    return sum(letter in "aeiou" for letter in sample.output_text) / (len(sample.output_text) + 1)
"""


class Site:
    """A server's parts over a data folder, without HTTP."""

    def __init__(self, folder: Path) -> None:
        self.folder = DataFolder.open(folder)
        self.database = open_database(None, self.folder.path)
        self.queue = JobQueue(self.database)
        self._launcher = LocalLauncher()
        self._ingester = Ingester(self.database, self.folder.path)
        self.runner = self.new_runner()

    def new_runner(self) -> Supervisor:
        """A runner as after a restart of the server; what it starts, the old one's launcher reaps."""
        limits = Limits(backoff_s=0.01)
        check = LocalLauncher(CHECK)
        return supervisor(self.queue, self.folder, self._launcher, ingester=self._ingester, check=check, limits=limits)

    def drive(self, condition: Callable[[], Any]) -> Any:
        """Work until a condition holds."""
        return until(condition, self.runner.tick, patience_s=240)

    def finish(self, job: Job) -> Job:
        """Work until a job has come to an end, be it for now."""
        ended = (*(status for status in TaskStatus if status.finished), TaskStatus.PAUSED)
        self.drive(lambda: self.queue.get(job.id).status in ended)
        return self.queue.get(job.id)

    def run_of(self, job: Job) -> RunDir:
        return RunDir(self.folder.found(job.folder))

    def close(self) -> None:
        """End everything."""
        for job in self.queue.list():
            if (pid := self.run_of(job).process_id()) is not None:
                os.kill(pid, signal.SIGKILL)
        self.drive(lambda: not self.queue.list(status=[TaskStatus.RUNNING]))
        self.runner.close()
        self.database.close()


def prepare(folder: Path) -> RunConfig:
    """A tiny model, rows and a reward, and a configuration around them."""
    save_tiny_model("llama", folder / "model")
    rows = [json.dumps({"prompt": f"Say {number}."}) + "\n" for number in range(8)]
    (folder / "rows.jsonl").write_text("".join(rows))
    (folder / "reward.py").write_text(REWARD)
    return parse_config(
        {
            "name": "tiny",
            "model": str(folder / "model"),
            "device": "cpu",
            "data": {"train": str(folder / "rows.jsonl")},
            "rewards": [{"name": "vowels", "source": f"{folder / 'reward.py'}:grade", "workers": 1}],
            "sampling": {"max_prompt_tokens": 64, "max_completion_tokens": 8},
            "train": {
                "batch_size": 2,
                "samples_per_prompt": 4,
                "epochs": 2,
                "max_steps": STEPS,
                "learning_rate": 1e-3,
                "save_every": 2,
            },
            "lora": {"r": 4},
        }
    )


@pytest.fixture(autouse=True)
def small_and_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread: on a model this small more are slower."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2] / "src"))


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path / "data")
    yield made
    made.close()


def measured(run: RunDir) -> list[dict[str, Any]]:
    """All metrics but those that depend on the clock."""
    return [
        {name: value for name, value in line.items() if not name.startswith("time/") and name != "tokens_per_second"}
        for line in run.metrics()
    ]


def weights(run: RunDir) -> dict[str, list[float]]:
    file = run.checkpoints / f"step-{STEPS:06d}" / "adapter_model.safetensors"
    return {name: tensor.flatten().tolist() for name, tensor in load_file(file).items()}


def test_a_job_whose_process_and_server_were_killed_ends_as_one_that_was_left_alone(site: Site, tmp_path: Path) -> None:
    alone = site.queue.create(NewJob("tiny", "tiny", prepare(tmp_path)))
    assert site.finish(alone).status is TaskStatus.SUCCEEDED
    job = site.queue.create(clone(alone))
    run = site.run_of(job)
    site.drive(lambda: run.metrics_file.exists() and len(run.metrics()) >= 3)
    pid = run.process_id()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    site.runner.close()
    site.runner = site.new_runner()
    done = site.finish(job)
    assert done.status is TaskStatus.SUCCEEDED
    assert measured(run) == measured(site.run_of(alone))
    assert weights(run) == weights(site.run_of(alone))
    told = [event.data["step"] for event in site.queue.events(job.id) if event.type == "metrics" and event.data]
    assert told == [1, 2, 3, 4, 5]
    assert counts(site, job) == counts(site, alone) == (STEPS, STEPS * 8)


def counts(site: Site, job: Job) -> tuple[int, int]:
    """Steps and rollouts of a job's run in the database."""
    with site.database.read() as connection:
        seq = connection.scalar(sa.text("SELECT seq FROM runs WHERE id = :id"), {"id": site.queue.get(job.id).run_id})
        found = [
            connection.scalar(sa.select(sa.func.count()).where(table.c.run == seq)) or 0 for table in (steps, rollouts)
        ]
    return found[0], found[1]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no file system may be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_job_on_a_full_disk_is_paused_and_goes_on_once_there_is_room(small_disk: Path, tmp_path: Path) -> None:
    config = prepare(tmp_path)
    full = config.model_copy(update={"train": config.train.model_copy(update={"method": "full", "save_every": 3})})
    site = Site(small_disk / "data")
    try:
        job = site.queue.create(NewJob("tiny", "tiny", full))
        run = site.run_of(job)
        site.drive(lambda: run.metrics_file.exists() and run.metrics())
        # Room for steps and for the database, but for no checkpoint.
        free = os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize
        with open(small_disk / "filler", "wb") as filler:
            filler.write(bytes(free - 500_000))
        paused = site.finish(job)
        assert (paused.status, paused.error_code) == (TaskStatus.PAUSED, "disk_full")
        assert "MiB free)" in (paused.reason or "")
        assert (paused.reason or "").endswith("then resume the job")
        assert str(run.path) in (paused.reason or "")
        (small_disk / "filler").unlink()
        site.queue.resume(job.id)
        assert site.finish(job).status is TaskStatus.SUCCEEDED
        assert [line["step"] for line in run.metrics()] == list(range(1, STEPS + 1))
    finally:
        site.close()
