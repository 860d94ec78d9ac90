"""What a recorded step leaves in the run folder."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from train_cases import config, group

from strop.store.recorder import RunRecorder, summary
from strop.store.rundir import RunDir
from strop.types import StepRecord

METRICS = {
    "loss": 4.11e-5,
    "grad_norm": 0.505,
    "learning_rate": 2e-6,
    "reward": 0.5,
    "solve_rate": 0.75,
    "response_length": 12.34,
}


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir.create(tmp_path / "run", config())


def test_the_line_of_a_step_reads_as_users_know_it() -> None:
    record = StepRecord(101, METRICS)
    line, rewards = summary(record).split(" | ")
    assert line == "loss 4.11e-5 • grad 0.505 • lr 2.00e-6 @ step 101"
    assert rewards == "reward 0.500 • solved 0.75 • length 12.3"


@pytest.mark.parametrize(
    ("loss", "shown"),
    [(-0.5, "-5.00e-1"), (0.0, "0.00e+0"), (12.0, "1.20e+1"), (3e-12, "3.00e-12"), (1e10, "1.00e+10")],
)
def test_a_loss_of_any_size_is_shown_with_its_exponent(loss: float, shown: str) -> None:
    assert summary(StepRecord(1, {"loss": loss})) == f"loss {shown} @ step 1"


def test_a_step_without_an_update_says_so() -> None:
    assert summary(StepRecord(0, {"validation/reward": 0.25})) == "no update @ step 0 | validation 0.250"
    assert summary(StepRecord(3, {})) == "no update @ step 3"


def test_a_record_leaves_rollouts_metrics_log_and_status(run: RunDir) -> None:
    record = StepRecord(7, METRICS, (group(0.0, 1.0),), ((-1.0, 1.0),), ("weights left alone: no reason",))
    RunRecorder(run).record(record)
    assert len(list(run.read_rollouts())) == 2
    assert run.metrics() == [{"step": 7, **METRICS}]
    log = [line[20:] for line in run.training_log.read_text(encoding="utf-8").splitlines()]
    assert log == ["weights left alone: no reason", summary(record)]
    assert (run.status()["state"], run.status()["step"]) == ("running", 7)


def test_a_validation_before_the_first_step_has_no_rollouts_file(run: RunDir) -> None:
    RunRecorder(run).record(StepRecord(0, {"validation/reward": 0.25}))
    assert not run.rollout_file(0).exists()
    assert run.metrics() == [{"step": 0, "validation/reward": 0.25}]


def test_a_step_counts_only_once_its_rollouts_are_there(run: RunDir) -> None:
    # The metrics cannot be written: the rollouts are, and will be replaced, but no step counts.
    with pytest.raises(ValueError, match="JSON compliant"):
        RunRecorder(run).record(StepRecord(1, {"loss": math.nan}, (group(1.0),), ((0.0,),)))
    assert run.rollout_file(1).exists()
    assert run.metrics() == []
