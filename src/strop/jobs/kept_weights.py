"""Weights of a checkpoint that another job trains on from: kept whatever becomes of the first run.

The new run starts from them: a LoRA run goes on with a copy of the adapter (or, with
`train.method = "full"`, with the adapter merged), a full one with the full weights. They are also
the reference of its KL penalty. Optimizer and data order start afresh.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from strop.errors import CheckpointError
from strop.store.checkpoints import read_checkpoint, verify
from strop.store.files import sync_folder

# What a checkpoint holds only for resuming the run that wrote it.
_RESUMING = frozenset({"trainer_state.pt", "learner_state.pt"})


def keep_weights(checkpoint: Path, target: Path) -> Path:
    """Make a checkpoint's model stay, also once its run drops it. CheckpointError where it is damaged.

    Files of a checkpoint never change, so that where possible they are the same files under a
    second name, and take no room.
    """
    found = read_checkpoint(checkpoint)
    if target.is_dir():
        return target
    verify(found)
    target.parent.mkdir(mode=0o700, exist_ok=True)
    staging = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}-"))
    try:
        for name in sorted(found.files.keys() - _RESUMING):
            _link(checkpoint / name, staging / name)
        sync_folder(staging)
        staging.rename(target)
    except OSError as error:
        if not target.is_dir():  # no other thread was faster
            raise CheckpointError(f"{checkpoint}: its weights cannot be kept in {target}: {error}") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    sync_folder(target.parent)
    return target


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, target)
        with open(target, "rb") as file:
            os.fsync(file.fileno())
