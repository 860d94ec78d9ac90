"""The run folder: the files of a run and the order in which they are written.

    config.toml               resolved configuration
    run.json                  versions and hardware that the run was started with
    status.json               current state, step, phase and process
    checkpoint_status.json    latest, best, and every checkpoint
    training.log              one line per step, and other events
    raw_output.log            all output of the training process
    metrics.jsonl             one object a step
    rollouts/000123.jsonl     every rollout of a step
    checkpoints/step-000120/  see `store.checkpoints`
    global_dataset_state_dict_120.pt

For each step, the rollouts are written first, then its line in metrics.jsonl, then the checkpoint, if any. A step
counts as recorded once its line is in metrics.jsonl.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from strop.config import RunConfig, dump_config, read_config
from strop.errors import RunError
from strop.store.files import append_line, json_line, read_lines, write_atomic, write_json
from strop.store.taskdir import TaskDir, read_object
from strop.types import Json


class RunState(StrEnum):
    """States of a run."""

    STARTING = "starting"
    """The process is loading data and model."""
    RUNNING = "running"
    PAUSED = "paused"
    """Stopped on request after a checkpoint; `strop resume` continues it."""
    FAILED = "failed"
    SUCCEEDED = "succeeded"

    @property
    def active(self) -> bool:
        """Whether a process should be running."""
        return self in (RunState.STARTING, RunState.RUNNING)


class FailureCode(StrEnum):
    """`code` of a failed run's status, beside those of `strop.errors`."""

    OUT_OF_MEMORY = "out_of_memory"
    DISK_FULL = "disk_full"
    UNEXPECTED = "unexpected_error"
    """An unexpected error, possibly temporary; a retry may help."""


class RunDir(TaskDir):
    """One run folder."""

    in_use = "is being trained"

    @classmethod
    def create(cls, path: Path, config: RunConfig) -> RunDir:
        """Create the folder of a new run. Raises RunError if it is not empty."""
        if path.exists() and any(path.iterdir()):
            raise RunError(f"{path} is not empty; resume it with `strop resume {path}`, or choose another folder")
        run = cls(path)
        for folder in (run.rollouts, run.checkpoints):
            folder.mkdir(parents=True, exist_ok=True)
        write_atomic(run.config_file, dump_config(config))
        run.set_status(RunState.STARTING, step=0)
        return run

    @classmethod
    def open(cls, path: Path) -> RunDir:
        """Open an existing run folder. Raises RunError if it is not one."""
        run = cls(path)
        if not run.config_file.is_file():
            raise RunError(f"{path} is not a run folder: it has no config.toml")
        return run

    @property
    def config_file(self) -> Path:
        return self.path / "config.toml"

    @property
    def facts_file(self) -> Path:
        """Versions and hardware of the latest training process."""
        return self.path / "run.json"

    @property
    def metrics_file(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def training_log(self) -> Path:
        return self.path / "training.log"

    @property
    def rollouts(self) -> Path:
        return self.path / "rollouts"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    def rollout_file(self, step: int) -> Path:
        return self.rollouts / f"{step:06d}.jsonl"

    def order_file(self, step: int) -> Path:
        """Snapshot of the data order, with a file name that is common in other trainers."""
        return self.path / f"global_dataset_state_dict_{step}.pt"

    def config(self) -> RunConfig:
        """The run's configuration."""
        return read_config(self.config_file)

    @property
    def checkpoint_status_file(self) -> Path:
        return self.path / "checkpoint_status.json"

    def checkpoint_status(self) -> dict[str, Json]:
        """Latest, best and all checkpoints; empty before the first."""
        return read_object(self.checkpoint_status_file)

    def set_status(self, state: RunState, **fields: Json) -> None:
        """Replace the status. Fields that are not given keep their value, but for those of one moment."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        known = {key: value for key, value in self.status().items() if key not in _MOMENTARY}
        write_json(self.status_file, {**known, "state": state, "updated_at": now, **fields})

    def metrics(self) -> list[dict[str, Json]]:
        """One object per step, with its number under `step`."""
        return list(read_lines(self.metrics_file))

    def append_metrics(self, step: int, metrics: Mapping[str, float]) -> None:
        """Record a step durably."""
        append_line(self.metrics_file, json_line({"step": step, **metrics}))

    def write_rollouts(self, step: int, rollouts: Iterable[Mapping[str, Json]]) -> None:
        """Write all rollouts of a step at once, replacing those of an earlier attempt at it."""
        write_atomic(self.rollout_file(step), "".join(map(json_line, rollouts)))

    def read_rollouts(self) -> Iterator[dict[str, Json]]:
        """All rollouts, step by step."""
        for file in sorted(self.rollouts.glob("*.jsonl")):
            yield from read_lines(file)

    def log(self, text: str) -> None:
        """Add a line, with the time, to training.log."""
        append_line(self.training_log, f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")

    def forget_after(self, step: int) -> None:
        """Remove the records after `step`, before the run repeats those steps."""
        kept = [line for line in self.metrics() if line["step"] <= step]
        write_atomic(self.metrics_file, "".join(map(json_line, kept)))
        for pattern in ("rollouts/*.jsonl", "global_dataset_state_dict_*.pt"):
            for file in self.path.glob(pattern):
                if int(file.stem.rpartition("_")[2]) > step:
                    file.unlink()
        for pattern in (".*.tmp", "rollouts/.*.tmp"):  # of writes that a kill cut short
            for file in self.path.glob(pattern):
                file.unlink()


_MOMENTARY = frozenset({"phase", "message", "code", "param"})
