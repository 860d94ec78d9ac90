"""The trackers write what their own readers find."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from strop.config import RunConfig, parse_config
from strop.errors import ConfigError
from strop.types import StepRecord
from strop.worker.trackers import Tracker, open_trackers

RECORDS = [StepRecord(1, {"reward": 0.25, "validation/pass@1": 0.5}), StepRecord(2, {"reward": 0.75})]


def config(*recorders: str) -> RunConfig:
    rewards = [{"name": "a", "source": "a.py:grade"}]
    return parse_config(
        {"name": "run", "model": "m", "data": {"train": "t"}, "rewards": rewards, "recorders": recorders}
    )


def record_all(folder: Path, name: str) -> None:
    (tracker,) = open_trackers(config(name), folder)
    for record in RECORDS:
        tracker.record(record)
    tracker.close()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_gets_every_metric_of_every_step(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    record_all(tmp_path, "tensorboard")
    events = accumulator.EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("reward")] == [(1, 0.25), (2, 0.75)]
    assert "validation/pass@1" in events.Tags()["scalars"]


@pytest.mark.filterwarnings("ignore")
def test_mlflow_gets_every_metric_of_every_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    mlflow.set_tracking_uri((tmp_path / "mlruns").as_uri())
    record_all(tmp_path, "mlflow")
    (run,) = mlflow.MlflowClient().search_runs(["0"])
    history = mlflow.MlflowClient().get_metric_history(run.info.run_id, "reward")
    assert [(point.step, point.value) for point in history] == [(1, 0.25), (2, 0.75)]
    assert run.data.metrics["validation/pass_at_1"] == 0.5


@pytest.mark.filterwarnings("ignore")
def test_wandb_takes_the_steps_without_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    record_all(tmp_path, "wandb")
    assert list(tmp_path.glob("wandb/offline-run-*/run-*.wandb"))


class Breaking:
    """A tracker whose service has gone away."""

    def __init__(self) -> None:
        self.calls = 0

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self.calls += 1
        raise ConnectionError("the service is gone")

    def close(self) -> None:
        raise AssertionError("a tracker that is off is not closed")


def test_a_tracker_that_breaks_is_warned_of_once_and_training_goes_on() -> None:
    backend = Breaking()
    tracker = Tracker("somewhere", backend)
    with pytest.warns(UserWarning, match="somewhere is off from step 1 on: the service is gone"):
        tracker.record(RECORDS[0])
    tracker.record(RECORDS[1])
    tracker.close()
    assert backend.calls == 1


def test_a_tracker_that_is_not_installed_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ConfigError, match=r'pip install "strop\[wandb\]"'):
        open_trackers(config("wandb"), tmp_path)
