"""Processes that are killed anywhere: nothing is lost, nothing is recorded twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from run_folders import new_run, play, record, rollout_line, view
from strop.store import queries
from strop.store.db import Database, open_database
from strop.store.ingest import Ingester
from strop.store.rundir import RunDir

IMPORTER = """
import sys
from pathlib import Path
from strop.store import steps
from strop.store.db import open_database
from strop.store.ingest import Ingester

url, folder, run = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
steps._BATCH_ROLLOUTS = 16  # a transaction for each step, so that a kill meets one
database = open_database(url, folder)
print("open", flush=True)
Ingester(database, folder).import_run(run)
print("done", flush=True)
"""

# Records steps as fast as it can and now and then starts over from an earlier one, as resume does.
TRAINER = """
import random, sys
from pathlib import Path
from run_folders import play
from strop.store.rundir import RunDir

run, chance = RunDir(Path(sys.argv[1])), random.Random(int(sys.argv[2]))
with run.lock():
    done = max((line["step"] for line in run.metrics()), default=-1)
    run.forget_after(chance.randint(max(done - 4, -1), done))
    print("training", flush=True)
    while True:
        step = max((line["step"] for line in run.metrics()), default=-1) + 1
        play(run, step, step, seed=chance.randrange(100))
"""


def start(script: str, *arguments: object) -> subprocess.Popen[str]:
    """A process that has said its first word."""
    paths = os.pathsep.join(path for path in sys.path if path)
    process = subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline()
    return process


def kill(process: subprocess.Popen[str]) -> str:
    """End it at once; what else it said."""
    process.send_signal(signal.SIGKILL)
    return process.communicate()[0]


def clean_view(run: RunDir, folder: Path) -> dict[str, Any]:
    """What a database that was never used before says of a run."""
    place = folder / f"clean-{time.monotonic_ns()}"
    place.mkdir()
    database = open_database(None, place)
    found = view(database, Ingester(database, folder).import_run(run.path))
    database.close()
    return found


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder with room for two MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    options = ["-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    if subprocess.run(["mount", *options], capture_output=True, check=False).returncode:
        pytest.skip("mounting a small disk needs root")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def test_a_full_disk_loses_nothing_and_the_import_goes_on_once_there_is_room(small_disk: Path, tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    for step in range(60):
        record(run, step, [rollout_line(step, sample=sample, answer=f"{sample} " * 500) for sample in range(100)])
    database = open_database(None, small_disk)
    ingester = Ingester(database, small_disk)
    with pytest.raises(OperationalError, match="full"):
        ingester.import_run(run.path)
    with database.read() as connection:
        (found,) = queries.runs(connection)
        name = found["id"]
        taken = len(queries.steps_page(connection, name, limit=1000))
        assert queries.count_rollouts(connection, name) == 100 * taken < 6000
    subprocess.run(["mount", "-o", "remount,size=64m", small_disk], check=True)
    assert ingester.refresh(name)
    assert view(database, name) == clean_view(run, small_disk)
    database.close()


def test_an_import_that_is_killed_goes_on_where_it_was(database_url: str, tmp_path: Path) -> None:
    run = new_run(tmp_path / "runs" / "one")
    play(run, 0, 120)
    expected, chance, counts = clean_view(run, tmp_path), random.Random(5), []
    for _ in range(4):
        importer = start(IMPORTER, database_url, tmp_path, run.path)
        time.sleep(chance.uniform(0.0, 0.12))
        finished = "done" in kill(importer)
        database = open_database(database_url, tmp_path)
        with database.read() as connection:
            name = next((found["id"] for found in queries.runs(connection)), None)
            counts.append(len(queries.steps_page(connection, name, limit=1000)) if name else 0)
            if name:  # whole steps only
                assert queries.count_rollouts(connection, name) == 16 * counts[-1]
        database.close()
        if finished:
            break
    assert counts == sorted(counts)
    database = open_database(database_url, tmp_path)
    assert view(database, Ingester(database, tmp_path).import_run(run.path)) == expected
    database.close()


def test_a_trainer_that_is_killed_again_and_again_is_followed(database: Database, tmp_path: Path) -> None:
    run = new_run(tmp_path / "runs" / "one")
    ingester = Ingester(database, tmp_path)
    name = ingester.import_run(run.path)
    for seed in range(4):
        trainer = start(TRAINER, run.path, seed)
        for _ in range(5):
            time.sleep(0.02)
            ingester.refresh(name)
        kill(trainer)  # perhaps between the rename of the rollouts and the line that makes them count
        if seed % 2:
            ingester = Ingester(database, tmp_path)  # the server was killed as well
        ingester.refresh(name)
        with database.read() as connection:
            found = [step["step"] for step in queries.steps_page(connection, name, limit=10_000)]
        assert found == [line["step"] for line in run.metrics()]
    assert view(database, name) == clean_view(run, tmp_path)
