"""The training process as a process: how it is started, stopped, and what it says."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from train_cases import config

from strop.store.rundir import RunDir
from strop.worker.__main__ import StopRequest

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}


def worker(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "strop.worker", *arguments], env=ENVIRONMENT, capture_output=True, text=True, timeout=120
    )


@pytest.fixture
def request_to_stop() -> Iterator[StopRequest]:
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield StopRequest()
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_a_request(number: signal.Signals, request_to_stop: StopRequest) -> None:
    assert not request_to_stop.made
    os.kill(os.getpid(), number)
    assert request_to_stop.made


def test_the_second_signal_ends_the_process() -> None:
    code = (
        "import os, signal, time\n"
        "from strop.worker.__main__ import StopRequest\n"
        "stop = StopRequest()\n"
        "os.kill(os.getpid(), signal.SIGINT)\n"
        "print(stop.made, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "time.sleep(60)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True, timeout=60)
    assert done.stdout == "True\n"
    assert done.returncode == -signal.SIGTERM


def test_a_server_may_ask_as_often_as_it_likes() -> None:
    code = (
        "import os, signal\n"
        "from strop.worker.__main__ import StopRequest\n"
        "stop = StopRequest(patient=True)\n"
        "for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT): os.kill(os.getpid(), number)\n"
        "print(stop.made, flush=True)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.returncode) == ("True\n", 0)


def test_a_process_whose_token_is_not_the_newest_leaves_the_run_alone(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path / "run", config())
    run.raise_fence(8)
    before = run.status()
    done = worker("train", str(run.path), "--token", "7")
    assert done.returncode == 1
    assert done.stderr.splitlines() == [f"{run.path} was given to a newer process: its fence is at 8, not 7"]
    assert run.status() == before


def test_a_folder_that_is_no_run_is_refused_in_one_line(tmp_path: Path) -> None:
    done = worker("train", str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.splitlines() == [f"{tmp_path} is not a run folder: it has no config.toml"]
    assert done.stdout == ""


def test_what_the_user_can_mend_is_said_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "reward.py").write_text("def score(sample, item):\n    return 1.0\n")
    made = config().model_copy(update={"model": str(tmp_path / "nowhere")})
    rewards = (made.rewards[0].model_copy(update={"source": f"{tmp_path / 'reward.py'}:score"}),)
    run = RunDir.create(tmp_path / "run", made.model_copy(update={"rewards": rewards}))
    done = worker("train", str(run.path))
    assert done.returncode == 1
    assert "Traceback" not in done.stdout + done.stderr
    status = run.status()
    assert status["state"] == "failed"
    assert "nowhere" in status["message"]
    assert (status["code"], status["param"]) == ("invalid_model", "model")
    assert status["message"] in run.training_log.read_text()
    assert not run.locked()


def test_the_process_ends_with_the_one_that_it_was_started_by(tmp_path: Path) -> None:
    # The parent starts a worker in its own name and tells its number; then it is killed.
    (tmp_path / "reward.py").write_text("import time\ntime.sleep(600)\n\ndef score(sample, item): ...\n")
    rewards = (config().rewards[0].model_copy(update={"source": f"{tmp_path / 'reward.py'}:score"}),)
    run = RunDir.create(tmp_path / "run", config().model_copy(update={"rewards": rewards}))
    code = (
        "import os, subprocess, sys, time\n"
        "command = [sys.executable, '-m', 'strop.worker', 'train', sys.argv[1], '--parent', str(os.getpid())]\n"
        "print(subprocess.Popen(command, stdout=subprocess.DEVNULL).pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code, run.path], env=ENVIRONMENT, stdout=subprocess.PIPE, text=True
    )
    try:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        wait(lambda: run.locked())
    finally:
        parent.kill()
        parent.communicate()
    wait(lambda: not alive(child))
    assert not run.locked()


def test_a_parent_that_is_gone_already_ends_the_process_before_it_starts(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path / "run", config())
    done = worker("train", str(run.path), "--parent", "1")
    assert done.returncode == 1
    assert run.status()["state"] == "starting"


def wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def alive(number: int) -> bool:
    try:
        state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
