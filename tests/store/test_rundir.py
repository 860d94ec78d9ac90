"""The run folder: states, steps, locks."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from train_cases import config

from strop.errors import RunError
from strop.store.rundir import RunDir, RunState

HOLDER = """
import sys, time
from pathlib import Path
from strop.store.rundir import RunDir
with RunDir(Path(sys.argv[1])).lock():
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir.create(tmp_path / "run", config())


@contextmanager
def held(run: RunDir) -> Iterator[subprocess.Popen[str]]:
    """The lock of a run in the hands of another process."""
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, run.path], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    try:
        yield holder
    finally:
        holder.kill()
        holder.communicate()


# Creating and opening


def test_a_new_run_has_its_configuration_and_status(run: RunDir) -> None:
    assert RunDir.open(run.path).config() == run.config()
    assert run.config().train == config().train
    assert (run.status()["state"], run.status()["step"]) == ("starting", 0)
    assert run.checkpoint_status() == {}
    assert run.metrics() == []
    assert list(run.read_rollouts()) == []


def test_a_folder_with_anything_in_it_is_not_taken_over(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(RunError, match="is not empty; resume it with `strop resume"):
        RunDir.create(tmp_path, config())
    assert [file.name for file in tmp_path.iterdir()] == ["notes.txt"]


def test_an_empty_folder_may_become_a_run(tmp_path: Path) -> None:
    assert RunDir.create(tmp_path, config()).config_file.is_file()


@pytest.mark.parametrize("name", ["", "nowhere"])
def test_a_folder_without_configuration_is_no_run(name: str, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"not a run folder: it has no config\.toml"):
        RunDir.open(tmp_path / name)


# Status


def test_a_status_keeps_what_it_is_not_given_but_for_what_belongs_to_one_moment(run: RunDir) -> None:
    run.set_status(RunState.FAILED, step=3, total_steps=9, phase="saving", message="no", code="disk_full", param="x")
    run.set_status(RunState.PAUSED)
    status = run.status()
    assert (status["state"], status["step"], status["total_steps"]) == ("paused", 3, 9)
    assert status.keys().isdisjoint(("phase", "message", "code", "param"))
    assert status["updated_at"].endswith("+00:00")


@pytest.mark.parametrize("state", RunState)
def test_a_run_is_active_while_a_process_should_be_at_work(state: RunState) -> None:
    assert state.active == (state.value in ("starting", "running"))


# Steps


def test_a_step_whose_line_was_torn_does_not_count(run: RunDir) -> None:
    run.append_metrics(1, {"reward": 0.5})
    run.append_metrics(2, {"reward": 0.6})
    whole = run.metrics_file.read_bytes()
    run.metrics_file.write_bytes(whole[:-5])
    assert run.metrics() == [{"step": 1, "reward": 0.5}]


def test_a_step_after_a_torn_line_starts_a_line_of_its_own(run: RunDir) -> None:
    run.append_metrics(1, {"reward": 0.5})
    with open(run.metrics_file, "a", encoding="utf-8") as file:
        file.write('{"step":2,"rew')
    run.forget_after(1)
    run.append_metrics(2, {"reward": 0.7})
    assert run.metrics() == [{"step": 1, "reward": 0.5}, {"step": 2, "reward": 0.7}]


def test_rollouts_of_an_earlier_attempt_are_replaced(run: RunDir) -> None:
    run.write_rollouts(1, [{"sample": 0}, {"sample": 1}])
    run.write_rollouts(1, [{"sample": 2}])
    assert run.rollout_file(1).name == "000001.jsonl"
    assert list(run.read_rollouts()) == [{"sample": 2}]


def test_rollouts_are_read_step_by_step(run: RunDir) -> None:
    for step in (10, 2, 1):
        run.write_rollouts(step, [{"step": step}])
    assert [rollout["step"] for rollout in run.read_rollouts()] == [1, 2, 10]


def test_forgetting_drops_all_that_was_recorded_after_a_step(run: RunDir) -> None:
    for step in range(4):
        run.append_metrics(step, {"reward": step / 10})
        run.write_rollouts(step, [{"step": step}])
        run.order_file(step).write_bytes(b"order")
    run.forget_after(1)
    assert [line["step"] for line in run.metrics()] == [0, 1]
    assert [rollout["step"] for rollout in run.read_rollouts()] == [0, 1]
    assert [run.order_file(step).exists() for step in range(4)] == [True, True, False, False]


def test_forgetting_everything_leaves_the_configuration(run: RunDir) -> None:
    run.append_metrics(0, {"validation/reward": 0.1})
    run.write_rollouts(1, [{"step": 1}])
    run.forget_after(-1)
    assert run.metrics() == []
    assert list(run.read_rollouts()) == []
    assert run.config().name == "case"


def test_forgetting_sweeps_what_a_killed_writer_left(run: RunDir) -> None:
    for name in (".status.json.123.tmp", "rollouts/.000003.jsonl.123.tmp"):
        (run.path / name).write_text("half")
    run.forget_after(0)
    assert list(run.path.rglob("*.tmp")) == []


def test_the_log_has_a_time_in_front_of_each_entry(run: RunDir) -> None:
    run.log("first")
    run.log("second")
    lines = run.training_log.read_text().splitlines()
    assert [line[20:] for line in lines] == ["first", "second"]
    for line in lines:
        time.strptime(line[:19], "%Y-%m-%d %H:%M:%S")


# Locks


def test_a_run_in_the_hands_of_another_process_is_refused_by_its_number(run: RunDir) -> None:
    with held(run) as holder, pytest.raises(RunError, match=f"is being trained by process {holder.pid}$"), run.lock():
        pass


def test_the_lock_is_seen_from_outside(run: RunDir) -> None:
    assert not run.locked()
    with held(run):
        assert run.locked()


def test_the_lock_of_a_killed_process_is_free(run: RunDir) -> None:
    with held(run) as holder:
        holder.kill()
        holder.wait()
        assert not run.locked()
        with run.lock():
            pass


def test_the_lock_is_free_after_use_and_after_an_error(run: RunDir) -> None:
    with pytest.raises(ValueError, match="inside"), run.lock():
        raise ValueError("inside")
    with run.lock():
        assert run.locked()
    assert not run.locked()


def test_the_process_that_trains_a_run_is_known_by_its_number(run: RunDir) -> None:
    assert run.process_id() is None
    with held(run) as holder:
        assert run.process_id() == holder.pid
    assert run.process_id() is None


# The fence


def test_a_process_with_an_older_token_may_not_train(run: RunDir) -> None:
    run.raise_fence(3)
    with pytest.raises(RunError, match="its fence is at 3, not 2"), run.lock(token=2):
        pass
    assert not run.locked()
    for token in (3, 4, None):
        with run.lock(token):
            assert run.locked()


def test_the_fence_is_never_lowered(run: RunDir) -> None:
    assert run.fence() == 0
    run.raise_fence(2)
    run.raise_fence(2)
    with pytest.raises(RunError, match="was given to a newer server"):
        run.raise_fence(1)
    assert run.fence() == 2


def test_looking_at_the_lock_does_not_keep_a_process_from_it(run: RunDir) -> None:
    # `locked` takes it for a moment; whoever wants it waits that long.
    looker = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys; from pathlib import Path; from strop.store.rundir import RunDir\n"
            "run = RunDir(Path(sys.argv[1]))\nprint('on', flush=True)\nwhile True: run.locked()",
            run.path,
        ],
        stdout=subprocess.PIPE,
    )
    try:
        assert looker.stdout is not None
        looker.stdout.readline()
        for _ in range(10):
            with run.lock():
                pass
    finally:
        looker.kill()
        looker.communicate()
