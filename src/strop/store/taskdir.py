"""The folder of a task, with the lock of its process and the fence against outdated processes.

spec.json         what to do; a run folder has config.toml instead
status.json       current state of the process; short tasks have none
raw_output.log    all output of the process
.lock             locked by the process, contains its id
.fence            current fencing token
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

from strop.errors import RunError
from strop.store.files import write_atomic
from strop.store.locks import hold, holder
from strop.types import Json


class TaskDir:
    """A task's folder."""

    in_use: ClassVar[str] = "is in use"

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def spec_file(self) -> Path:
        return self.path / "spec.json"

    @property
    def status_file(self) -> Path:
        return self.path / "status.json"

    @property
    def raw_output(self) -> Path:
        return self.path / "raw_output.log"

    def spec(self) -> dict[str, Json]:
        """What to do."""
        return read_object(self.spec_file)

    def status(self) -> dict[str, Json]:
        """The current status; empty if none was written."""
        return read_object(self.status_file)

    def locked(self) -> bool:
        """Whether a process is currently working on the task."""
        return holder(self._lock_file) is not None

    def process_id(self) -> int | None:
        """Id of the process that is currently working on the task, or None."""
        while (pid := holder(self._lock_file)) == "":  # it is about to write it
            time.sleep(0.01)
        return None if pid is None else int(pid)

    @contextmanager
    def lock(self, token: int | None = None) -> Iterator[None]:
        """Lock the task for this process. Raises RunError if another process works on it.

        `token` is the fencing token from a server. Raises RunError if the fence has a higher one.
        """
        with hold(self._lock_file, lambda pid: RunError(f"{self.path} {self.in_use} by process {pid}")):
            # Looked at under the lock: whoever raises the fence and then finds no process can be
            # sure that none of an older token follows.
            if token is not None and (newest := self.fence()) > token:
                raise RunError(f"{self.path} was given to a newer process: its fence is at {newest}, not {token}")
            yield

    def fence(self) -> int:
        """The current fencing token; 0 before the first."""
        file = self.path / ".fence"
        return int(file.read_text(encoding="utf-8")) if file.exists() else 0

    def raise_fence(self, token: int) -> None:
        """Prevent processes with a lower token from working. Raises RunError if the fence is already higher."""
        with hold(self.path / ".fence.lock", lambda pid: RunError(f"{self.path} is held by process {pid}")):
            if (newest := self.fence()) > token:
                raise RunError(f"{self.path} was given to a newer server: its fence is at {newest}, not {token}")
            write_atomic(self.path / ".fence", str(token))

    @property
    def _lock_file(self) -> Path:
        return self.path / ".lock"


def read_object(file: Path) -> dict[str, Json]:
    """The JSON object in a file; empty if the file is missing."""
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
