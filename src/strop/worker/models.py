"""Finding and loading the model that a person names: catalogue, hub, folder, checkpoint or run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from strop.errors import ModelError
from strop.policy.fetch import Say, resolve
from strop.policy.model import Policy, fast_dtype, load_policy, pick_device
from strop.store.checkpoints import MANIFEST, Checkpoint, read_checkpoint, verify
from strop.store.rundir import RunDir
from strop.worker.checkpoints import checkpoint_store


@dataclass(frozen=True)
class Found:
    """A model that can be loaded."""

    source: str
    """Folder or hub id."""
    label: str
    """For tables and messages."""


def find_model(text: str, say: Say) -> Found:
    """What a person means: a model's name or folder, a checkpoint, or a run, which stands for its
    best checkpoint, or its newest where none was validated.

    Raises ModelError, or CheckpointError for a damaged checkpoint.
    """
    path = Path(text)
    if (path / MANIFEST).is_file():
        return _checkpoint(read_checkpoint(path))
    if (path / "config.toml").is_file():
        run = RunDir.open(path)
        store = checkpoint_store(run, run.config())
        chosen = store.best() or store.newest_valid(say)
        if chosen is None:
            raise ModelError(f"{text} has no checkpoint yet", param="model")
        return _checkpoint(chosen)
    return Found(resolve(text, say), text)


def load_model(text: str, device: str, say: Say) -> tuple[Policy, Found]:
    """Find and load, for answering and not for training."""
    found = find_model(text, say)
    place = pick_device(device)
    return load_policy(found.source, found.label, place, fast_dtype(place)), found


def _checkpoint(checkpoint: Checkpoint) -> Found:
    verify(checkpoint)
    run = checkpoint.path.resolve().parents[1]
    return Found(str(checkpoint.path), f"{run.name} step {checkpoint.step}")
