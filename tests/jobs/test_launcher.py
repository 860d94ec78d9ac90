"""Training processes on this machine: started, found again, asked, ended. Nobody else's are touched."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from job_cases import config, stub_command, until

from strop.jobs.launcher import UNKNOWN_EXIT, LocalLauncher, Process, Unreachable
from strop.store.datafolder import DataFolder
from strop.store.rundir import RunDir


@pytest.fixture
def folder(tmp_path: Path) -> DataFolder:
    return DataFolder.open(tmp_path / "data")


@pytest.fixture
def run(folder: DataFolder) -> RunDir:
    return RunDir.create(folder.runs / "run", config())


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """A process that has nothing to do with us."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield process
    process.kill()
    process.wait()


def launched(run: RunDir, folder: DataFolder, **plan: Any) -> tuple[LocalLauncher, Process]:
    """A process that trains, as far as its lock says."""
    launcher = LocalLauncher(stub_command(folder, **plan))
    process = launcher.launch(run.path, {**os.environ, "JUDGE_KEY": "hush"}, token=3)
    until(lambda: run.process_id() == process.pid)
    return launcher, process


def ended(launcher: LocalLauncher, process: Process) -> int:
    """The status of a process, once it has ended."""
    while (code := launcher.poll(process)) is None:
        time.sleep(0.01)
    return code


HANG = {"ends": [{"step": 1, "how": "hang"}]}


def test_a_process_is_watched_to_its_end(run: RunDir, folder: DataFolder) -> None:
    launcher = LocalLauncher(stub_command(folder))
    process = launcher.launch(run.path, dict(os.environ), token=3)
    assert ended(launcher, process) == 0
    assert run.status()["state"] == "succeeded"
    assert launcher.find(run.path) is None


def test_the_status_of_a_child_is_its_own(run: RunDir, folder: DataFolder) -> None:
    launcher = LocalLauncher(stub_command(folder, ends=[{"step": 1, "how": "kill"}]))
    process = launcher.launch(run.path, dict(os.environ), token=3)
    assert ended(launcher, process) == -signal.SIGKILL


def test_secrets_are_in_the_environment_and_not_on_the_command_line(run: RunDir, folder: DataFolder) -> None:
    launcher, process = launched(run, folder, **HANG)
    seen = psutil.Process(process.pid)
    assert seen.cmdline()[-3:] == [str(run.path), "--token", "3"]
    assert seen.environ()["JUDGE_KEY"] == "hush"
    assert os.getsid(process.pid) == process.pid  # Ctrl-C at the server does not reach it
    launcher.stop(process, now=True)
    assert ended(launcher, process) == -signal.SIGKILL


def test_another_server_finds_it_watches_it_and_ends_it(run: RunDir, folder: DataFolder) -> None:
    first, process = launched(run, folder, **HANG)
    second = LocalLauncher()
    assert second.find(run.path) == process
    assert second.poll(process) is None
    second.stop(process, now=True)
    assert ended(second, process) == UNKNOWN_EXIT
    assert ended(first, process) == -signal.SIGKILL


def test_a_process_on_its_way_to_the_lock_is_found_by_what_is_known_of_it(run: RunDir) -> None:
    first = LocalLauncher([sys.executable, "-c", "import time; time.sleep(600)"])
    process = first.launch(run.path, dict(os.environ), token=3)
    second = LocalLauncher()
    assert second.find(run.path) is None
    assert second.find(run.path, Process(process.pid, process.started_at - 60)) is None
    assert second.find(run.path, process) == process
    assert second.poll(process) is None
    second.stop(process, now=True)
    assert ended(first, process) == -signal.SIGKILL
    assert second.find(run.path, process) is None


def test_asking_lets_it_save_and_pause(run: RunDir, folder: DataFolder) -> None:
    launcher, process = launched(run, folder, steps=1_000, step_s=0.02)
    until(lambda: run.metrics())
    for _ in range(3):
        launcher.stop(process, now=False)
    assert ended(launcher, process) == 0
    assert run.status()["state"] == "paused"
    launcher.stop(process, now=True)  # nothing is there any more


def test_a_number_that_was_given_out_again_stands_for_nobody(run: RunDir, stranger: subprocess.Popen[bytes]) -> None:
    # A trainer with that number was here and is gone: its lock is free.
    (run.path / ".lock").write_text(str(stranger.pid))
    launcher = LocalLauncher()
    assert launcher.find(run.path) is None
    process = Process(stranger.pid, psutil.Process(stranger.pid).create_time())
    assert launcher.find(run.path, process) is None
    assert launcher.poll(process) == UNKNOWN_EXIT
    for now in (False, True):
        launcher.stop(process, now)
    assert stranger.poll() is None


def test_a_run_in_the_hands_of_another_machine_is_out_of_reach(run: RunDir) -> None:
    with open(run.path / ".lock", "w") as file:
        file.write("4194999")  # above the highest number of a process
        file.flush()
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(Unreachable, match="by process 4194999, which is not on this machine"):
            LocalLauncher().find(run.path)
