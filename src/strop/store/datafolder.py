"""The data folder of a server, used by one server at a time.

.lock                         held by the server, with its process id
server.json                   process id and address of the server
strop.db                      the database, if SQLite is used
secret.key                    encryption key of the secrets
files/<file id>               uploaded files
rewards/<reward id>/<version>/
runs/<job id>/                run folders of jobs
evaluations/<evaluation id>/
tasks/<task id>/              short tasks: checks of files, trials of rewards, lengths of prompts
engine.sock                   the model process
server.log
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from strop.errors import ServerError
from strop.store.files import write_json
from strop.store.locks import hold, holder


class DataFolder:
    """One data folder."""

    def __init__(self, path: Path) -> None:
        """Refer to a folder, which may not exist. See `open`."""
        self.path = path

    @classmethod
    def open(cls, path: Path | None = None) -> DataFolder:
        """Open the folder at `path` or the default folder, creating it if it is missing.

        Raises ServerError if it cannot be created or written to.
        """
        folder = cls((path or default_path()).expanduser().resolve())
        try:
            folder.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            for inner in (folder.files, folder.rewards, folder.runs, folder.evaluations, folder.tasks):
                inner.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise ServerError(f"{folder.path}: cannot create a data folder here: {error.strerror}") from None
        if not os.access(folder.path, os.W_OK | os.X_OK):
            raise ServerError(f"{folder.path}: the data folder is read-only; choose another one with --data-dir")
        return folder

    @property
    def secret_key(self) -> Path:
        return self.path / "secret.key"

    @property
    def files(self) -> Path:
        return self.path / "files"

    @property
    def rewards(self) -> Path:
        return self.path / "rewards"

    @property
    def runs(self) -> Path:
        return self.path / "runs"

    @property
    def evaluations(self) -> Path:
        return self.path / "evaluations"

    @property
    def tasks(self) -> Path:
        return self.path / "tasks"

    @property
    def engine_socket(self) -> Path:
        return self.path / "engine.sock"

    @property
    def log_file(self) -> Path:
        return self.path / "server.log"

    def stored(self, path: Path) -> str:
        """A path as stored in the database: relative if it is inside this folder, so that the folder can be moved."""
        absolute = path.resolve()
        inside = absolute.is_relative_to(self.path) and absolute != self.path
        return str(absolute.relative_to(self.path) if inside else absolute)

    def found(self, stored: str) -> Path:
        """Convert a stored path back to a full path."""
        return self.path / stored

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the folder for this process. Raises ServerError if another process holds it."""
        try:
            with hold(self._lock_file, self._refuse):
                yield
        except PermissionError as error:
            raise ServerError(f"{error.filename}: {error.strerror}; the folder belongs to another user") from None

    def announce(self, url: str) -> None:
        """Record the server's address for commands on this machine."""
        write_json(self._address_file, {"pid": os.getpid(), "url": url})

    def server_url(self) -> str | None:
        """Address of the server of this folder; None if no process holds the lock.

        Raises ServerError if a process holds the lock without an address: it is starting, stopping, or not a server.
        """
        pid = holder(self._lock_file)
        if pid is None:
            return None
        try:
            address = json.loads(self._address_file.read_text(encoding="utf-8"))
            if str(address["pid"]) == pid:
                return str(address["url"])
        except (OSError, ValueError, KeyError, TypeError):
            pass
        raise self._refuse(pid)

    @property
    def _lock_file(self) -> Path:
        return self.path / ".lock"

    @property
    def _address_file(self) -> Path:
        return self.path / "server.json"

    def _refuse(self, pid: str) -> ServerError:
        return ServerError(
            f"{self.path} is in use by process {pid}; stop that process first, or choose another --data-dir"
        )


def default_path() -> Path:
    """`$STROP_HOME`, else `~/.local/share/strop`."""
    return Path(os.environ.get("STROP_HOME") or Path.home() / ".local" / "share" / "strop")
