"""Checkpoints on disk: complete or not there, checked by hash, the newest valid one found.

A checkpoint is written to a hidden folder, every file is synced and hashed, the manifest
comes last, and one rename makes it visible. Another one hides it again before it is deleted.
What the files hold is the caller's business.
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
    """A checkpoint as its manifest describes it."""

    step: int
    path: Path
    facts: Mapping[str, Json]
    """What the trainer noted: model, method, validation reward, time."""
    files: Mapping[str, Mapping[str, Json]]
    """Name to `size` in bytes and `sha256`."""

    @property
    def validation_reward(self) -> float | None:
        """Mean reward on held-out rows at this step, where it was measured."""
        return self.facts.get("validation_reward")

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file["size"] for file in self.files.values())


class CheckpointStore:
    """The checkpoints of one run."""

    def __init__(self, folder: Path, status_file: Path, keep: int) -> None:
        """`keep` newest ones stay, and the best; the status file names them all."""
        self._folder = folder
        self._status_file = status_file
        self._keep = keep

    def save(self, step: int, facts: Mapping[str, Json], write: Callable[[Path], None]) -> Checkpoint:
        """Let `write` fill a folder, then make it the checkpoint of `step`, and drop surplus ones."""
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
        """All checkpoints with a readable manifest, oldest first; their files are not checked."""
        found = []
        for path in self._paths():
            with suppress(CheckpointError):
                found.append(read_checkpoint(path))
        return found

    def best(self) -> Checkpoint | None:
        """The one with the highest validation reward, the newer one of equals."""
        measured = [(c.validation_reward, c.step, c) for c in self.list() if c.validation_reward is not None]
        return max(measured, key=lambda entry: entry[:2])[2] if measured else None

    def newest_valid(self, on_damage: Callable[[str], None]) -> Checkpoint | None:
        """The newest checkpoint whose files all match; `on_damage` hears of each one skipped.

        None where there is no checkpoint yet; CheckpointError where all are damaged, since to
        start over would throw the steps that they stand for away.
        """
        paths = self._paths()
        for path in reversed(paths):
            try:
                checkpoint = read_checkpoint(path)
                verify(checkpoint)
            except CheckpointError as error:
                on_damage(f"{error.message}; going back to the checkpoint before it")
            else:
                return checkpoint
        if paths:
            raise CheckpointError(
                f"{self._folder}: every checkpoint is damaged, {len(paths)} of them; "
                "bring one back from a copy, or start a new run"
            )
        return None

    def sweep(self, after: int) -> None:
        """Drop what a killed process left half-written, and checkpoints after `after`."""
        for path in self._folder.glob(".tmp-*"):
            shutil.rmtree(path)
        for path in self._paths():
            if _step_of(path) > after:
                self._delete(path)
        self.write_status()

    def delete(self, step: int) -> None:
        """Drop the checkpoint of a step. CheckpointError where there is none."""
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
        """Folders of checkpoints, complete or damaged, oldest first."""
        return sorted(self._folder.glob("step-*"), key=_step_of)

    def _delete(self, path: Path) -> None:
        """Hide, then delete: a kill in between must not leave a checkpoint without some files."""
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
    """What the manifest says. CheckpointError when there is none, or it cannot be read."""
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        return Checkpoint(manifest["step"], path, manifest, manifest["files"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path}: no readable {MANIFEST} ({error})") from error


def verify(checkpoint: Checkpoint) -> None:
    """Compare every file with the manifest. CheckpointError names the first that differs."""
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
    """Make a file durable and describe it."""
    with open(file, "rb") as handle:
        os.fsync(handle.fileno())
    return {"size": file.stat().st_size, "sha256": _sha256(file)}


def _sha256(file: Path) -> str:
    with open(file, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
