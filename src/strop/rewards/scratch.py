"""Temporary folders of reward processes. A killed process cannot remove its own: the next one does."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

PREFIX = "strop-reward-"


class ScratchFolder:
    """A folder that exists until `remove`, or until its owner is gone and another is made.

    The owner holds a lock on it, which the kernel releases however the owner ends.
    """

    def __init__(self) -> None:
        _remove_abandoned(Path(tempfile.gettempdir()))
        self.path, self._lock = _made()

    def remove(self) -> None:
        """Delete the folder with all that is in it. May be called again."""
        if self._lock >= 0:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)
            self._lock = -1


def _made() -> tuple[Path, int]:
    """A new folder and the lock on it. Between the two, another process may take it for abandoned."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=PREFIX))
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            continue
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if path.is_dir():
            return path, descriptor
        os.close(descriptor)


def _remove_abandoned(parent: Path) -> None:
    """Delete this user's folders that nobody holds."""
    for path in parent.glob(f"{PREFIX}*"):
        try:
            if path.stat().st_uid != os.getuid():
                continue
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue  # removed in this moment, or no folder
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
        except BlockingIOError:
            pass  # its owner is alive
        finally:
            os.close(descriptor)
