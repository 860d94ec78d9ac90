"""Unix sockets whose path is longer than the kernel takes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from strop.errors import ServerError

_MAX_SOCKET_PATH = 100  # the kernel has 108 bytes for it, other systems a few less


@contextmanager
def reachable(socket: Path) -> Iterator[str]:
    """A path for the socket that is short enough for the kernel; valid inside the block only."""
    if len(os.fsencode(socket)) <= _MAX_SOCKET_PATH:
        yield str(socket)
        return
    folder = os.open(socket.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        short = Path(f"/proc/self/fd/{folder}")
        if not short.exists():
            raise ServerError(f"{socket}: longer than the {_MAX_SOCKET_PATH} bytes that a socket's path may have")
        yield str(short / socket.name)
    finally:
        os.close(folder)
