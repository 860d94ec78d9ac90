"""Experiment trackers, in addition to the run folder. Each needs an extra of the package.

A tracker is only a display; the run folder is the source of truth. An error in a tracker gives one warning, and
training continues.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from strop.config import RunConfig
from strop.errors import ConfigError
from strop.types import Recorder, StepRecord


class Backend(Protocol):
    """The interface of a tracker."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Log the metrics of a step."""

    def close(self) -> None:
        """Flush and close."""


class TensorBoard:
    """Event files in `tensorboard/` of the run folder."""

    def __init__(self, module: Any, config: RunConfig, folder: Path) -> None:
        self._writer = module.SummaryWriter(str(folder / "tensorboard"))

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class WeightsAndBiases:
    """A W&B run; `[wandb]`, `WANDB_PROJECT`, `WANDB_MODE` and the other variables of W&B apply."""

    def __init__(self, module: Any, config: RunConfig, folder: Path) -> None:
        self._run = module.init(
            **{"name": config.name, **config.wandb.model_dump(exclude_defaults=True)},
            id=folder.name,
            resume="allow",
            dir=str(folder),
            config=config.model_dump(mode="json"),
        )

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        self._run.finish()


class MLflow:
    """An MLflow run; `MLFLOW_TRACKING_URI` and `MLFLOW_EXPERIMENT_NAME` apply."""

    def __init__(self, module: Any, config: RunConfig, folder: Path) -> None:
        self._module = module
        module.start_run(run_name=folder.name)
        module.log_params({f"train.{key}": value for key, value in config.train.model_dump().items()})

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        # MLflow takes no @ in names, which pass@k has.
        self._module.log_metrics({name.replace("@", "_at_"): value for name, value in metrics.items()}, step=step)

    def close(self) -> None:
        self._module.end_run()


TRACKERS: Mapping[str, tuple[str, Callable[[Any, RunConfig, Path], Backend]]] = {
    "tensorboard": ("torch.utils.tensorboard", TensorBoard),
    "wandb": ("wandb", WeightsAndBiases),
    "mlflow": ("mlflow", MLflow),
}


class Tracker:
    """A `Recorder` for a tracker, whose errors do not stop training."""

    def __init__(self, name: str, backend: Backend) -> None:
        self._name = name
        self._backend: Backend | None = backend

    def record(self, record: StepRecord) -> None:
        """Log the metrics. After an error, warn and disable the tracker."""
        if self._backend is None:
            return
        try:
            self._backend.log(record.step, record.metrics)
        except Exception as error:
            warnings.warn(f"{self._name} is disabled from step {record.step}: {error}", stacklevel=2)
            self._backend = None

    def close(self) -> None:
        """Flush and close."""
        if self._backend is not None:
            self._backend.close()


def open_trackers(config: RunConfig, folder: Path) -> list[Recorder]:
    """Open the trackers in the configuration. Raises ConfigError if an extra is not installed."""
    return [_open(name, config, folder) for name in config.recorders]


def _open(name: str, config: RunConfig, folder: Path) -> Tracker:
    module_name, backend = TRACKERS[name]
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ConfigError(
            f'recorders: {name} is not installed; install it with: pip install "strop[{name}]"', param="recorders"
        ) from error
    return Tracker(name, backend(module, config, folder))
