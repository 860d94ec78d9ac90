"""`strop train` and `strop resume`, as processes that get real signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from strop.store.rundir import RunDir

Strop = Callable[..., subprocess.CompletedProcess[str]]


def start(project: Path, *arguments: str) -> subprocess.Popen[str]:
    """A command that goes on in the background."""
    return subprocess.Popen(
        [sys.executable, "-m", "strop", *arguments],
        cwd=project,
        env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "160"},
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def wait_for_step(run: RunDir, step: int) -> None:
    deadline = time.monotonic() + 120
    while not any(line["step"] >= step for line in run.metrics()):
        assert time.monotonic() < deadline, "the run does not get on"
        time.sleep(0.02)


def endless(project: Path, name: str) -> tuple[subprocess.Popen[str], RunDir]:
    """A run of many steps that has begun to train."""
    settings = ("train.max_steps=100000", "train.epochs=100000", "train.save_every=100000", "train.eval_every=0")
    changes = [text for setting in settings for text in ("--set", setting)]
    process = start(project, "train", "config.toml", "--run-dir", f"runs/{name}", *changes)
    run = RunDir(project / "runs" / name)
    wait_for_step(run, 2)
    return process, run


def test_prints_a_line_for_each_step_and_what_to_do_next(strop: Strop, project: Path) -> None:
    done = strop("train", "config.toml", "--run-dir", "runs/lines")
    assert done.returncode == 0
    lines = [line.split() for line in done.stderr.splitlines()]
    assert [line[0] for line in lines if line and line[0].isdigit()] == ["0", "1", "2", "3"]
    assert "strop eval runs/lines" in done.stderr


def test_json_is_one_document_on_standard_output(strop: Strop, project: Path) -> None:
    done = strop("train", "config.toml", "--run-dir", "runs/json", "--json", "--set", "train.max_steps=1")
    document = json.loads(done.stdout)
    assert document["state"] == "succeeded"
    assert document["metrics"]["step"] == 1


def test_names_the_folder_after_run_and_time(strop: Strop, project: Path) -> None:
    done = strop("train", "config.toml", "--set", "train.max_steps=1", "--set", "name=dated")
    assert done.returncode == 0
    assert len(list((project / "runs").glob("dated-20*"))) == 1


def test_a_folder_that_is_not_empty_is_refused(strop: Strop, finished: Path) -> None:
    done = strop("train", "config.toml", "--run-dir", str(finished))
    assert done.returncode == 1
    assert f"strop resume {finished}" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_mistake_in_the_configuration_is_one_message(strop: Strop) -> None:
    done = strop("train", "config.toml", "--set", "train.learning_rat=1")
    assert done.returncode == 1
    assert "train.learning_rat: unknown key; did you mean 'learning_rate'?" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_failed_run_says_why(strop: Strop, project: Path) -> None:
    (project / "broken.py").write_text("def grade(sample, item):\n    return None\n")
    source = f'rewards=[{{name="broken", source="{project / "broken.py"}:grade"}}]'
    done = strop("train", "config.toml", "--run-dir", "runs/failed", "--set", source)
    assert done.returncode == 1
    assert "groups could not be scored" in done.stderr
    assert "returned None" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
def test_asked_to_stop_it_pauses_and_can_be_resumed(project: Path, number: signal.Signals) -> None:
    process, run = endless(project, f"paused-{number.name}")
    process.send_signal(number)
    _, messages = process.communicate(timeout=120)
    assert process.returncode == 0, messages
    assert run.status()["state"] == "paused"
    assert "resume with: strop resume" in messages
    step = run.status()["step"]
    resumed = start(project, "resume", str(run.path))
    try:
        wait_for_step(run, step + 1)
    finally:
        resumed.send_signal(signal.SIGINT)
        _, messages = resumed.communicate(timeout=120)
    assert resumed.returncode == 0, messages


def test_a_second_ctrl_c_stops_at_once(project: Path) -> None:
    process, run = endless(project, "stopped")
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGINT)
    _, messages = process.communicate(timeout=60)
    # The worker may have been between two steps and saved in between: then it has paused.
    assert process.returncode in (0, 130), messages
    assert not run.locked()


def test_a_run_that_is_being_trained_is_not_resumed_beside_it(strop: Strop, project: Path) -> None:
    process, run = endless(project, "busy")
    try:
        done = strop("resume", str(run.path))
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=120)
    assert done.returncode == 1
    assert "is being trained by process" in done.stderr


def test_the_worker_ends_with_a_command_that_is_killed(project: Path) -> None:
    process, run = endless(project, "orphan")
    process.kill()
    process.communicate()
    deadline = time.monotonic() + 10
    while run.locked():
        assert time.monotonic() < deadline, "the training process goes on without its command"
        time.sleep(0.05)


def test_a_worker_that_is_killed_is_reported(project: Path) -> None:
    process, run = endless(project, "killed")
    pid = int((run.path / ".lock").read_text())
    os.kill(pid, signal.SIGKILL)
    _, messages = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "signal SIGKILL" in messages
    assert "strop resume" in messages


def test_a_finished_run_is_not_resumed(strop: Strop, finished: Path) -> None:
    done = strop("resume", str(finished))
    assert done.returncode == 1
    assert "is already finished" in done.stderr


def test_resuming_what_is_no_run_says_so(strop: Strop) -> None:
    done = strop("resume", "nowhere")
    assert done.returncode == 1
    assert "nowhere is not a run folder" in done.stderr
