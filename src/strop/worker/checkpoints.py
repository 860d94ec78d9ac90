"""Checkpoints of a training process: weights and trainer state."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import torch
from safetensors import SafetensorError

from strop.config import RunConfig
from strop.data.order import DataOrder
from strop.policy.checkpoint import TRAINER_STATE, load_state, save_state
from strop.store.checkpoints import Checkpoint, CheckpointStore
from strop.store.rundir import RunDir
from strop.train.learner import Learner


class SaveError(OSError):
    """A checkpoint could not be written, probably because the disk is full."""


def checkpoint_store(run: RunDir, config: RunConfig) -> CheckpointStore:
    """The checkpoints of a run folder."""
    return CheckpointStore(run.checkpoints, run.checkpoint_status_file, config.train.keep)


@dataclass(frozen=True)
class TrainingCheckpoints:
    """`Checkpoints` of the training loop: saves everything that an exact resume needs."""

    run: RunDir
    config: RunConfig
    store: CheckpointStore
    learner: Learner
    order: DataOrder

    @property
    def best_reward(self) -> float | None:
        """Highest validation reward among the checkpoints."""
        best = self.store.best()
        return best.validation_reward if best else None

    def save(self, step: int, validation_reward: float | None) -> None:
        """Save the learner, data order and random state after `step`."""
        with _writing(self.run.path):
            torch.save(self.order.state(step), self.run.order_file(step))
        facts = {
            "model": self.config.model,
            "method": self.config.train.method,
            "format": "HuggingFace",
            "validation_reward": validation_reward,
            "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        self.store.save(step, facts, lambda folder: self._write(step, folder))
        self.run.log(f"checkpoint of step {step} saved")

    def restore(self, checkpoint: Checkpoint) -> None:
        """Restore the learner's state and the random state; the policy already has its weights. Raises RunError if
        the checkpoint belongs to other data or settings.
        """
        state = load_state(checkpoint.path / TRAINER_STATE)
        self.order.resume_step(state["order"], str(checkpoint.path))
        self.learner.restore(checkpoint.path)
        torch.set_rng_state(state["rng"])

    def _write(self, step: int, folder: Path) -> None:
        with _writing(folder):
            self.learner.save(folder)
            save_state(folder / TRAINER_STATE, {"order": self.order.state(step), "rng": torch.get_rng_state()})


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except (RuntimeError, SafetensorError) as error:  # how torch and safetensors report a full disk
        free = shutil.disk_usage(folder).free / 2**20
        raise SaveError(f"cannot write {folder} ({free:.0f} MiB free): {error}") from error
