"""Checkpoints on disk: written atomically, verified by hash, with recovery of the newest valid one.

A checkpoint is written to a hidden folder, every file is synced and hashed, the manifest
is written last, and one rename makes the checkpoint visible. Another rename hides it before it is deleted. This
module does not interpret the files.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from strop.errors import CheckpointError
from strop.store.files import sync_folder, write_json
from strop.types import Json

MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint, as described by its manifest."""

    step: int
    path: Path
    facts: Mapping[str, Json]
    """Metadata from the trainer: model, method, validation reward, time."""
    files: Mapping[str, Mapping[str, Json]]
    """Name to `size` in bytes and `sha256`."""

    @property
    def validation_reward(self) -> float | None:
        """Validation reward at this step, or None."""
        return self.facts.get("validation_reward")

    @property
    def size(self) -> int:
        """Total size of the files in bytes."""
        return sum(file["size"] for file in self.files.values())


class CheckpointStore:
    """The checkpoints of one run."""

    def __init__(self, folder: Path, status_file: Path, keep: int) -> None:
        """The `keep` newest checkpoints and the best one are kept; the status file lists them."""
        self._folder = folder
        self._status_file = status_file
        self._keep = keep

    def save(self, step: int, facts: Mapping[str, Json], write: Callable[[Path], None]) -> Checkpoint:
        """Let `write` fill a folder, publish it as the checkpoint of `step`, and delete surplus checkpoints."""
        target = self._folder / name_of(step)
        staging = self._folder / f".tmp-{name_of(step)}"
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir(parents=True)
        try:
            write(staging)
            files = {file.name: _seal(file) for file in sorted(staging.iterdir())}
            write_json(staging / MANIFEST, {"step": step, **facts, "files": files})
        except BaseException:
            shutil.rmtree(staging, ignore_errors=True)  # a full disk has no room for half of one
            raise
        if target.exists():
            self._delete(target)
        os.replace(staging, target)
        sync_folder(self._folder)
        self._prune()
        return read_checkpoint(target)

    def list(self) -> list[Checkpoint]:
        """All checkpoints with a readable manifest, oldest first. Their files are not verified."""
        found = []
        for path in self._paths():
            with suppress(CheckpointError):
                found.append(read_checkpoint(path))
        return found

    def best(self) -> Checkpoint | None:
        """The checkpoint with the highest validation reward; of equals, the newer one."""
        measured = [(c.validation_reward, c.step, c) for c in self.list() if c.validation_reward is not None]
        return max(measured, key=lambda entry: entry[:2])[2] if measured else None

    def newest_valid(self, on_damage: Callable[[str], None]) -> Checkpoint | None:
        """The newest checkpoint whose files all match. `on_damage` is called for each skipped checkpoint.

        Returns None if there is no checkpoint. Raises CheckpointError if all are damaged, because starting over
        would discard their steps.
        """
        paths = self._paths()
        for path in reversed(paths):
            try:
                checkpoint = read_checkpoint(path)
                verify(checkpoint)
            except CheckpointError as error:
                on_damage(f"{error.message}; using the previous checkpoint instead")
            else:
                return checkpoint
        if paths:
            raise CheckpointError(
                f"{self._folder}: all {len(paths)} checkpoints are damaged; "
                "restore one from a backup, or start a new run"
            )
        return None

    def sweep(self, after: int) -> None:
        """Delete incomplete checkpoints of a killed process, and checkpoints after step `after`."""
        for path in self._folder.glob(".tmp-*"):
            shutil.rmtree(path)
        for path in self._paths():
            if _step_of(path) > after:
                self._delete(path)
        self.write_status()

    def delete(self, step: int) -> None:
        """Delete the checkpoint of a step. Raises CheckpointError if there is none."""
        path = self._folder / name_of(step)
        if not path.is_dir():
            raise CheckpointError(f"{path}: no checkpoint there")
        self._delete(path)
        self.write_status()

    def write_status(self) -> None:
        """Replace checkpoint_status.json."""
        checkpoints, best = self.list(), self.best()
        entries = [
            {
                "step": checkpoint.step,
                "path": str(checkpoint.path.relative_to(self._status_file.parent)),
                "state": "complete",
                "format": checkpoint.facts.get("format"),
                "files": len(checkpoint.files),
                "size": checkpoint.size,
                "validation_reward": checkpoint.validation_reward,
                "created_at": checkpoint.facts.get("created_at"),
            }
            for checkpoint in checkpoints
        ]
        latest = checkpoints[-1].step if checkpoints else None
        write_json(self._status_file, {"latest": latest, "best": best.step if best else None, "checkpoints": entries})

    def _prune(self) -> None:
        checkpoints, best = self.list(), self.best()
        for checkpoint in checkpoints[: -self._keep]:
            if best is None or checkpoint.step != best.step:
                self._delete(checkpoint.path)
        self.write_status()

    def _paths(self) -> Sequence[Path]:
        """Checkpoint folders, complete or damaged, oldest first."""
        return sorted(self._folder.glob("step-*"), key=_step_of)

    def _delete(self, path: Path) -> None:
        """Hide, then delete: a kill in between must not leave an incomplete checkpoint."""
        hidden = self._folder / f".tmp-old-{path.name}"
        shutil.rmtree(hidden, ignore_errors=True)
        os.replace(path, hidden)
        shutil.rmtree(hidden)


def name_of(step: int) -> str:
    """Folder name of a step's checkpoint."""
    return f"step-{step:06d}"


def _step_of(path: Path) -> int:
    return int(path.name.removeprefix("step-"))


def read_checkpoint(path: Path) -> Checkpoint:
    """Read the manifest. Raises CheckpointError if it is missing or unreadable."""
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        return Checkpoint(manifest["step"], path, manifest, manifest["files"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path}: no readable {MANIFEST} ({error})") from error


def verify(checkpoint: Checkpoint) -> None:
    """Verify every file against the manifest. Raises CheckpointError for the first difference."""
    for name, expected in checkpoint.files.items():
        file = checkpoint.path / name
        if not file.is_file():
            raise CheckpointError(f"{file}: missing")
        size = file.stat().st_size
        if size != expected["size"]:
            raise CheckpointError(f"{file}: damaged, {size} bytes instead of {expected['size']}")
        if _sha256(file) != expected["sha256"]:
            raise CheckpointError(f"{file}: damaged, its content does not match the manifest")


def _seal(file: Path) -> dict[str, Json]:
    """Sync a file to disk and return its size and hash."""
    with open(file, "rb") as handle:
        os.fsync(handle.fileno())
    return {"size": file.stat().st_size, "sha256": _sha256(file)}


def _sha256(file: Path) -> str:
    with open(file, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
