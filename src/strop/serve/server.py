"""A model process on its Unix socket, until it is terminated or its parent exits."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from strop.errors import ServerError
from strop.serve.socket_path import reachable

_PARENT_POLL_S = 1.0
_GRACE_S = 1


class SocketServer(uvicorn.Server):
    """uvicorn on a Unix socket that only its user reaches."""

    def __init__(self, app: FastAPI, path: Path, parent: int | None) -> None:
        """The server ends together with the process `parent`, which started it."""
        super().__init__(
            uvicorn.Config(
                app,
                log_config=None,
                lifespan="off",
                ws="none",
                access_log=False,
                timeout_graceful_shutdown=_GRACE_S,
            )
        )
        self._path = path
        self._parent = parent
        self.status = 0
        """Exit status of the process."""

    def end(self, status: int = 0) -> None:
        """Cancel requests in progress and exit."""
        self.status = self.status or status
        self.should_exit = self.force_exit = True

    async def run_until_ended(self) -> int:
        """Serve, and return the exit status. Raises ServerError if the socket cannot be created."""
        watch = asyncio.create_task(self._watch())
        try:
            with reachable(self._path) as path, _listener(path) as listener:
                signal.signal(signal.SIGINT, signal.SIG_IGN)  # at a terminal, Ctrl-C is for the server
                asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self.end)
                await self.serve(sockets=[listener])
        except OSError as error:
            raise ServerError(f"{self._path}: no socket can be made there: {error.strerror}") from None
        finally:
            watch.cancel()
        return self.status

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # they are handled above

    async def _watch(self) -> None:
        """Exit with the parent, also on systems without kernel support for that."""
        while self._parent is None or os.getppid() == self._parent:
            await asyncio.sleep(_PARENT_POLL_S)
        self.end()


@contextlib.contextmanager
def _listener(path: str) -> Iterator[socket.socket]:
    """A socket at the path; the one that a process before left there is removed."""
    with contextlib.suppress(FileNotFoundError):
        if Path(path).is_socket():
            os.unlink(path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(path)
        os.chmod(path, 0o600)  # before clients can connect: it does not listen yet
        yield listener
