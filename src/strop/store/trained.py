"""The trained model of a run, by the path of the run folder or a checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from strop.errors import ModelError
from strop.store.checkpoints import MANIFEST, Checkpoint, CheckpointStore, read_checkpoint, verify
from strop.store.rundir import RunDir


def trained_at(path: Path, on_damage: Callable[[str], None]) -> Checkpoint | None:
    """The checkpoint that a path refers to: the checkpoint itself, or a run's best one, or its newest if none was
    validated. Its files are verified. None for any other folder.

    Raises ModelError for a run without checkpoints, CheckpointError for damage. `on_damage` is called for newer
    checkpoints that are damaged.
    """
    if (path / MANIFEST).is_file():
        checkpoint = read_checkpoint(path)
    elif (path / "config.toml").is_file():
        checkpoint = _chosen(RunDir.open(path), on_damage)
    else:
        return None
    verify(checkpoint)
    return checkpoint


def _chosen(run: RunDir, on_damage: Callable[[str], None]) -> Checkpoint:
    store = CheckpointStore(run.checkpoints, run.checkpoint_status_file, keep=1)
    chosen = store.best() or store.newest_valid(on_damage)
    if chosen is None:
        raise ModelError(f"{run.path} has no checkpoint yet", param="model")
    return chosen
