"""Experiment trackers: they show, and never stop training."""

from __future__ import annotations

import sys
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from train_cases import config

from strop.config import RunConfig, WandbConfig
from strop.errors import ConfigError
from strop.types import StepRecord
from strop.worker.trackers import Tracker, open_trackers

METRICS = {"reward": 0.5, "validation/pass@1": 0.25}


def with_recorders(*names: str) -> RunConfig:
    return config().model_copy(update={"recorders": names})


class Broken:
    """A backend whose service is down."""

    def __init__(self) -> None:
        self.calls = 0

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self.calls += 1
        raise ConnectionError("no route to host")

    def close(self) -> None:
        raise AssertionError("closed after it broke")


def test_without_recorders_there_are_none(tmp_path: Path) -> None:
    assert open_trackers(config(), tmp_path) == []


def test_tensorboard_gets_every_metric_of_every_step(tmp_path: Path) -> None:
    (tracker,) = open_trackers(with_recorders("tensorboard"), tmp_path)
    for step in (0, 1, 2):
        tracker.record(StepRecord(step, {**METRICS, "loss": step / 4}))
    tracker.close()
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert set(events.Tags()["scalars"]) == {"reward", "validation/pass@1", "loss"}
    assert [(event.step, event.value) for event in events.Scalars("loss")] == [(0, 0.0), (1, 0.25), (2, 0.5)]


def test_wandb_gets_configuration_and_metrics_and_goes_on_after_resuming(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged: list[Any] = []

    class Run:
        def log(self, metrics: dict[str, float], step: int) -> None:
            logged.append((step, metrics))

        def finish(self) -> None:
            logged.append("finished")

    settings: dict[str, Any] = {}

    def init(**given: Any) -> Run:
        settings.update(given)
        return Run()

    monkeypatch.setitem(sys.modules, "wandb", fake_module("wandb", init=init))
    (tracker,) = open_trackers(with_recorders("wandb"), tmp_path / "case-1")
    tracker.record(StepRecord(3, METRICS))
    tracker.close()
    assert logged == [(3, METRICS), "finished"]
    # The folder's name is the run's identity, so that a resumed run goes on with its curve.
    assert (settings["name"], settings["id"], settings["resume"]) == ("case", "case-1", "allow")


def test_wandb_puts_the_run_where_the_configuration_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, Any] = {}
    monkeypatch.setitem(sys.modules, "wandb", fake_module("wandb", init=lambda **given: settings.update(given)))
    table = WandbConfig(project="sums", name="third try", tags=("rft",))
    open_trackers(with_recorders("wandb").model_copy(update={"wandb": table}), tmp_path / "case-1")
    assert (settings["project"], settings["name"], settings["tags"]) == ("sums", "third try", ("rft",))
    assert "entity" not in settings
    assert settings["config"]["train"]["batch_size"] == 4


def test_mlflow_gets_names_that_it_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    module = fake_module(
        "mlflow",
        start_run=lambda run_name: calls.append(run_name),
        log_params=lambda params: calls.append(params),
        log_metrics=lambda metrics, step: calls.append((step, metrics)),
        end_run=lambda: calls.append("ended"),
    )
    monkeypatch.setitem(sys.modules, "mlflow", module)
    (tracker,) = open_trackers(with_recorders("mlflow"), tmp_path / "case-1")
    tracker.record(StepRecord(3, METRICS))
    tracker.close()
    assert calls[0] == "case-1"
    assert calls[1]["train.batch_size"] == 4
    assert calls[2:] == [(3, {"reward": 0.5, "validation/pass_at_1": 0.25}), "ended"]


def fake_module(name: str, **functions: Any) -> types.ModuleType:
    module = types.ModuleType(name)
    vars(module).update(functions)
    return module


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_tracker_that_is_not_installed_is_refused_with_the_command(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigError, match=rf'recorders: {name} is not installed.*pip install "strop\[{name}\]"'):
        open_trackers(with_recorders(name), tmp_path)


def test_a_tracker_that_breaks_is_warned_of_once_and_left_out() -> None:
    broken = Broken()
    tracker = Tracker("wandb", broken)
    with pytest.warns(UserWarning, match="wandb is disabled from step 4: no route to host"):
        tracker.record(StepRecord(4, METRICS))
    tracker.record(StepRecord(5, METRICS))
    tracker.close()
    assert broken.calls == 1
