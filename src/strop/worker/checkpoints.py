"""The checkpoints of a training process: weights, trainer state, and their place on disk."""

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
    """A checkpoint that could not be written; a full disk, as far as torch and safetensors tell."""


def checkpoint_store(run: RunDir, config: RunConfig) -> CheckpointStore:
    """The checkpoints of a run folder."""
    return CheckpointStore(run.checkpoints, run.checkpoint_status_file, config.train.keep)


@dataclass(frozen=True)
class TrainingCheckpoints:
    """`Checkpoints` of the training loop: saves what a run needs to go on as if never stopped."""

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
        """Put the learner's state and the random state back; the policy has its weights already.

        RunError when the checkpoint belongs to other data or settings.
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
        raise SaveError(f"{folder} cannot be written, {free:.0f} MiB are free there: {error}") from error
