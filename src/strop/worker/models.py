"""Find and load a model by name: catalogue, hub, folder, checkpoint or run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from strop.policy.fetch import Say, resolve
from strop.policy.model import Policy, fast_dtype, load_policy, pick_device
from strop.store.trained import trained_at


@dataclass(frozen=True)
class Found:
    """A model that can be loaded."""

    source: str
    """Folder or Hugging Face id."""
    label: str
    """Label for tables and messages."""


def find_model(text: str, say: Say) -> Found:
    """Resolve a name: a model's name or folder, a checkpoint, or a run (its best checkpoint, or the newest if none
    was validated).

    Raises ModelError, or CheckpointError for a damaged checkpoint.
    """
    checkpoint = trained_at(Path(text), say)
    if checkpoint is None:
        return Found(resolve(text, say), text)
    run = checkpoint.path.resolve().parents[1]
    return Found(str(checkpoint.path), f"{run.name} step {checkpoint.step}")


def load_model(text: str, device: str, say: Say) -> tuple[Policy, Found]:
    """Find and load a model for inference."""
    found = find_model(text, say)
    place = pick_device(device)
    return load_policy(found.source, found.label, place, fast_dtype(place)), found
