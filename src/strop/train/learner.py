"""What the training loop and the checkpoints need of a learner. `grpo` has the one for this process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from strop.train.batch import Sample


@dataclass(frozen=True)
class Update:
    """What an optimizer step did."""

    metrics: dict[str, float]
    skipped: str | None = None
    """Why the weights were left alone, or None."""
    diverged: bool = False
    """Whether a loss or gradient was not finite."""
    cut_short: str | None = None
    """Why the passes over the step ended early, after the weights had changed, or None."""


class Learner(Protocol):
    """Updates weights, saves them, and publishes them to the sampler."""

    def update(self, samples: Sequence[Sample], learning_rate: float) -> Update:
        """Train on the scored samples of one step."""

    def save(self, folder: Path) -> None:
        """Save weights and the training state in an existing folder."""

    def restore(self, folder: Path) -> None:
        """Restore the state that `save` wrote."""

    def publish(self) -> int:
        """Publish the current weights to the sampler and return their version.

        The version grows when the weights have changed, and stays the same while they have not; it
        is saved and restored, so that rollouts of one run never share a version by chance.
        """
