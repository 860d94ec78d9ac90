"""Process locks: a locked file that contains the id of the process.

The lock is released when the process ends, even after a crash.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from strop.errors import StropError

_PATIENCE_S = 1.0


@contextmanager
def hold(path: Path, refused: Callable[[str], StropError]) -> Iterator[None]:
    """Hold the lock. If another process has it, raise `refused(pid)`."""
    with open(path, "a+", encoding="utf-8") as file:
        deadline = time.monotonic() + _PATIENCE_S
        while not _try_lock(file, fcntl.LOCK_EX):  # `holder` of another process takes it for a moment
            if time.monotonic() > deadline:
                file.seek(0)
                raise refused(file.read().strip())
            time.sleep(0.05)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def holder(path: Path) -> str | None:
    """Id of the process that holds the lock, or None."""
    try:
        with open(path, encoding="utf-8") as file:
            return None if _try_lock(file, fcntl.LOCK_SH) else file.read().strip()
    except FileNotFoundError:
        return None


def _try_lock(file: IO[str], kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
