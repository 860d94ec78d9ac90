"""The real training process, killed and stopped at any moment, ends as if it never had been.

On a CPU a run with a seed is exact: weights, optimizer, metrics and rollouts of a run that was
interrupted equal those of one that was not, bit for bit.
"""

from __future__ import annotations

import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from models import save_tiny_model
from strop.config import RunConfig, dump_config, parse_config
from strop.policy.checkpoint import LEARNER_STATE, TRAINER_STATE, load_state
from strop.store.checkpoints import read_checkpoint, verify
from strop.store.rundir import RunDir

PATIENCE_S = 120.0
STEPS = 6
WORDS = "one two three four five six seven eight nine ten eleven twelve"

VOWELS = """
def grade(sample, item):
    text = sample["output_text"]
    return (sum(letter in "aeiou" for letter in text) + 1) / (len(text) + 1)
"""
RAISES = """
def grade(sample, item):
    raise ValueError("the judge is not at home")
"""
HANGS = """
import time

def grade(sample, item):
    time.sleep(600)
"""


# Runs


@pytest.fixture(scope="module")
def materials(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny model, rows and a reward."""
    folder = tmp_path_factory.mktemp("materials")
    save_tiny_model("llama", folder / "model")
    for name, words in (("rows", WORDS), ("held_out", "red green blue")):
        lines = [json.dumps({"prompt": f"Say {word}."}) + "\n" for word in words.split()]
        (folder / f"{name}.jsonl").write_text("".join(lines))
    (folder / "reward.py").write_text(VOWELS)
    return folder


def settings(
    materials: Path, method: str = "lora", reward: Path | None = None, rows: Path | None = None, validate: bool = True
) -> RunConfig:
    """Six steps of two prompts, checkpoints at 2, 4 and 6, validation at 3 and 6."""
    held_out = {"validation": str(materials / "held_out.jsonl")} if validate else {}
    return parse_config(
        {
            "name": "crash",
            "model": str(materials / "model"),
            "seed": 3,
            "device": "cpu",
            "data": {"train": str(rows or materials / "rows.jsonl"), **held_out},
            "rewards": [{"name": "vowels", "source": f"{reward or materials / 'reward.py'}:grade", "workers": 1}],
            "sampling": {"max_prompt_tokens": 64, "max_completion_tokens": 12},
            "train": {
                "method": method,
                "batch_size": 2,
                "samples_per_prompt": 4,
                "learning_rate": 1e-3,
                "save_every": 2,
                "eval_every": 3 if validate else 0,
            },
            "lora": {"r": 4},
        }
    )


@pytest.fixture(scope="module")
def whole(materials: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], RunDir]:
    """Runs that nothing interrupted, one for each method, made when first asked for."""
    runs: dict[str, RunDir] = {}

    def run_of(method: str) -> RunDir:
        if method not in runs:
            run = RunDir.create(tmp_path_factory.mktemp("whole") / method, settings(materials, method))
            assert finish(run) == 0
            runs[method] = run
        return runs[method]

    return run_of


# Processes


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Whatever is still alive when a test ends is killed."""
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        process.kill()
        process.wait()


def start(run: RunDir, largest_file: int | None = None) -> subprocess.Popen[bytes]:
    """The training process of a run. One thread: on a model this small more are slower."""

    def limit() -> None:
        if largest_file is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))

    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    with open(run.raw_output, "ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "strop.worker", "train", str(run.path)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            preexec_fn=limit,
        )


def finish(run: RunDir) -> int:
    return start(run).wait(PATIENCE_S)


def until(condition: Callable[[], bool], process: subprocess.Popen[bytes], pause_s: float = 0.002) -> bool:
    """Wait for a condition; false when the process ended before it held."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if process.poll() is not None:
            return False
        assert time.monotonic() < deadline
        time.sleep(pause_s)
    return True


def kill(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait(PATIENCE_S)


def state(run: RunDir) -> str:
    return str(run.status()["state"])


def steps(run: RunDir) -> list[int]:
    return [line["step"] for line in run.metrics()]


def log(run: RunDir) -> str:
    return run.training_log.read_text(encoding="utf-8")


def stopped_in_a_write(run: RunDir, process: subprocess.Popen[bytes]) -> bool:
    """Whether the process writes a checkpoint at this moment; if so, it is held there."""
    if not any(run.checkpoints.glob(".tmp-step-*")):
        return False
    process.send_signal(signal.SIGSTOP)
    time.sleep(0.01)
    if any(run.checkpoints.glob(".tmp-step-*")):
        return True
    process.send_signal(signal.SIGCONT)
    return False


# Results


def measured(run: RunDir) -> list[dict[str, Any]]:
    """All metrics but those that depend on the clock."""
    return [
        {name: value for name, value in line.items() if not name.startswith("time/") and name != "tokens_per_second"}
        for line in run.metrics()
    ]


def rolled_out(run: RunDir) -> list[dict[str, Any]]:
    """All rollouts but what depends on the clock."""
    return [
        {**line, "timing": None, "turns": [{**turn, "seconds": None} for turn in line["turns"]]}
        for line in run.read_rollouts()
    ]


def weights(run: RunDir, step: int = STEPS) -> dict[str, torch.Tensor]:
    folder = run.checkpoints / f"step-{step:06d}"
    (file,) = folder.glob("*.safetensors")
    found: dict[str, torch.Tensor] = load_file(file)
    return found


def assert_equal(found: RunDir, expected: RunDir) -> None:
    """Bit for bit: metrics, rollouts, weights, states, and what the status files say."""
    assert measured(found) == measured(expected)
    assert rolled_out(found) == rolled_out(expected)
    assert same(weights(found), weights(expected))
    for name in (TRAINER_STATE, LEARNER_STATE):
        ends = [load_state(run.checkpoints / f"step-{STEPS:06d}" / name) for run in (found, expected)]
        assert same(ends[0], ends[1])
    assert kept(found) == kept(expected)
    assert (state(found), found.status()["step"]) == ("succeeded", STEPS)


def kept(run: RunDir) -> tuple[Any, Any, list[tuple[int, float | None]]]:
    status = run.checkpoint_status()
    entries = [(entry["step"], entry["validation_reward"]) for entry in status["checkpoints"]]
    return status["latest"], status["best"], entries


def same(found: Any, expected: Any) -> bool:
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(same(found[key], expected[key]) for key in expected)
    if isinstance(expected, list | tuple):
        return len(found) == len(expected) and all(map(same, found, expected))
    return torch.equal(found, expected) if isinstance(expected, torch.Tensor) else bool(found == expected)


# What a whole run leaves


def test_a_whole_run_leaves_every_file_and_metric_that_is_promised(whole: Callable[[str], RunDir]) -> None:
    run = whole("lora")
    assert steps(run) == [0, 1, 2, 3, 4, 5, 6]
    assert len(rolled_out(run)) == STEPS * 2 * 4
    promised = """reward max_reward solve_rate reward/vowels max_reward/vowels solve_rate/vowels reward_group_std
        frac_reward_zero_std response_length response_length_clip_ratio advantages kl_loss entropy loss grad_norm
        learning_rate prompts_dropped rollouts_errored sampler_trainer_gap time/sample time/reward time/train
        tokens_per_second validation/reward validation/max_reward validation/solve_rate validation/response_length"""
    assert set(promised.split()) - run.metrics()[-1].keys() == set()
    # Of the newest three and the best; where validation has never been better, one more is saved.
    latest, best, checkpoints = kept(run)
    assert latest == STEPS
    assert best in dict(checkpoints)
    for path in run.checkpoints.iterdir():
        verify(read_checkpoint(path))
    for step, _ in checkpoints:
        assert torch.load(run.order_file(step), weights_only=True)["row_count"] == len(WORDS.split())
    assert log(run).count(" @ step ") == STEPS + 1
    assert json.loads((run.path / "run.json").read_text())["torch"] == torch.__version__


def test_the_weights_of_a_run_move(whole: Callable[[str], RunDir]) -> None:
    run = whole("full")
    first, last = (weights(run, step) for step in (run.checkpoint_status()["checkpoints"][0]["step"], STEPS))
    assert not same(first, last)


# Kills


@pytest.mark.parametrize("method", ["lora", "full"])
def test_a_run_killed_again_and_again_ends_as_one_that_never_was(
    method: str,
    materials: Path,
    whole: Callable[[str], RunDir],
    tmp_path: Path,
    processes: list[subprocess.Popen[bytes]],
) -> None:
    chance = random.Random(method)
    run = RunDir.create(tmp_path / "run", settings(materials, method))
    # Somewhere before the second step, in the first checkpoint, and somewhere behind later steps.
    moments: list[Callable[[subprocess.Popen[bytes]], bool]] = [
        lambda process: run.status().get("phase") == "sampling",
        lambda process: stopped_in_a_write(run, process),
        lambda process: 3 in steps(run),
        lambda process: 5 in steps(run),
    ]
    for moment in moments:
        process = start(run)
        processes.append(process)
        assert until(partial(moment, process), process, pause_s=0.0)
        time.sleep(chance.uniform(0, 0.1))
        kill(process)
        for path in run.checkpoints.glob("step-*"):
            verify(read_checkpoint(path))
    assert finish(run) == 0
    assert "resuming after step" in log(run)
    assert not list(run.path.rglob(".*tmp*"))
    assert_equal(run, whole(method))


def test_a_stopped_run_pauses_with_a_checkpoint_and_goes_on_as_if_it_had_not(
    materials: Path, whole: Callable[[str], RunDir], tmp_path: Path, processes: list[subprocess.Popen[bytes]]
) -> None:
    run = RunDir.create(tmp_path / "run", settings(materials))
    process = start(run)
    processes.append(process)
    assert until(lambda: 1 in steps(run), process)
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_S) == 0
    assert state(run) == "paused"
    assert "strop resume" in run.status()["message"]
    stopped = run.status()["step"]
    assert steps(run)[-1] == stopped
    assert 1 <= stopped < STEPS
    assert run.checkpoint_status()["latest"] == stopped
    assert finish(run) == 0
    # One checkpoint more than the whole run has; otherwise no difference.
    assert measured(run) == measured(whole("lora"))
    assert rolled_out(run) == rolled_out(whole("lora"))
    assert same(weights(run), weights(whole("lora")))
    assert state(run) == "succeeded"


def test_a_second_stop_ends_at_once(materials: Path, tmp_path: Path, processes: list[subprocess.Popen[bytes]]) -> None:
    (tmp_path / "hangs.py").write_text(HANGS)
    run = RunDir.create(tmp_path / "run", settings(materials, reward=tmp_path / "hangs.py", validate=False))
    process = start(run)
    processes.append(process)
    assert until(lambda: run.status().get("phase") == "sampling", process)
    process.send_signal(signal.SIGTERM)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.5)
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == -signal.SIGTERM
    assert not run.locked()


# Damage and changes


def copy_of(run: RunDir, folder: Path) -> RunDir:
    shutil.copytree(run.path, folder)
    return RunDir.open(folder)


@pytest.mark.parametrize("damage", ["flip", "manifest"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_it_goes_on(
    damage: str, whole: Callable[[str], RunDir], tmp_path: Path
) -> None:
    run = copy_of(whole("lora"), tmp_path / "run")
    newest = run.checkpoints / f"step-{STEPS:06d}"
    file = newest / ("manifest.json" if damage == "manifest" else "adapter_model.safetensors")
    content = bytearray(file.read_bytes())
    if damage == "flip":
        content[-1] ^= 1
        file.write_bytes(content)
    else:
        file.unlink()
    (run.checkpoints / ".tmp-step-000099").mkdir()
    (run.path / ".status.json.99.tmp").write_text("half")
    assert finish(run) == 0
    assert not list(run.path.rglob(".*tmp*"))
    assert f"step-{STEPS:06d}" in log(run)
    assert "using the previous checkpoint instead" in log(run)
    assert f"resuming after step 4 of {STEPS}" in log(run)
    assert_equal(run, whole("lora"))


def test_a_checkpoint_that_does_not_fit_fails_the_run_and_harms_no_other(
    whole: Callable[[str], RunDir], tmp_path: Path
) -> None:
    # As on a full disk: the weights fit, the optimizer's state does not.
    run = copy_of(whole("full"), tmp_path / "run")
    shutil.rmtree(run.checkpoints / f"step-{STEPS:06d}")
    before = {path.name for path in run.checkpoints.iterdir()}
    assert start(run, largest_file=400_000).wait(PATIENCE_S) == 1
    assert state(run) == "failed"
    assert re.search(r"cannot write \S*step-000006 \(\d+ MiB free\): ", run.status()["message"])
    assert run.status()["message"].endswith(f"Fix this, then resume with: strop resume {run.path}")
    assert run.status()["code"] == "disk_full"
    assert {path.name for path in run.checkpoints.iterdir()} == before
    assert finish(run) == 0
    assert_equal(run, whole("full"))


def test_a_changed_data_file_is_refused_on_resuming(
    whole: Callable[[str], RunDir], materials: Path, tmp_path: Path
) -> None:
    run = copy_of(whole("lora"), tmp_path / "run")
    rows = tmp_path / "rows.jsonl"
    rows.write_text((materials / "rows.jsonl").read_text().replace("seven", "eleventy"))
    run.config_file.write_text(dump_config(settings(materials, rows=rows)))
    before = measured(run)
    assert finish(run) == 1
    assert state(run) == "failed"
    assert "fingerprint" in run.status()["message"]
    assert "resume with the run's original data and settings" in run.status()["message"]
    # What was there is still there.
    assert measured(run) == before
    assert kept(run) == kept(whole("lora"))


def test_a_second_process_on_a_run_is_refused_by_the_number_of_the_first(
    materials: Path, tmp_path: Path, processes: list[subprocess.Popen[bytes]]
) -> None:
    (tmp_path / "hangs.py").write_text(HANGS)
    run = RunDir.create(tmp_path / "run", settings(materials, reward=tmp_path / "hangs.py", validate=False))
    first = start(run)
    processes.append(first)
    assert until(lambda: run.status().get("phase") == "sampling", first)
    status = run.status()
    assert finish(run) == 1
    assert f"is being trained by process {first.pid}" in run.raw_output.read_text()
    assert first.poll() is None
    assert run.status() == status


def test_a_reward_that_always_raises_fails_the_run_and_a_mended_one_goes_on(materials: Path, tmp_path: Path) -> None:
    reward = tmp_path / "reward.py"
    reward.write_text(RAISES)
    run = RunDir.create(tmp_path / "run", settings(materials, reward=reward, validate=False))
    assert finish(run) == 1
    assert state(run) == "failed"
    assert "could not be scored" in run.status()["message"]
    assert 'raise ValueError("the judge is not at home")' in log(run)
    failures = [line["failure"] for line in run.read_rollouts()]
    assert failures
    assert {failure["cause"] for failure in failures} == {"exception"}
    assert {line["reward"] for line in run.read_rollouts()} == {None}
    failed = steps(run)
    reward.write_text(VOWELS)
    assert finish(run) == 0
    assert state(run) == "succeeded"
    assert steps(run) == list(range(1, STEPS + 1))
    assert "reward" not in run.metrics()[0]
    assert "reward" in run.metrics()[len(failed)]
