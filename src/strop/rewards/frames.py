"""Frames between a reward pool and its processes, and the child's end of the line.

A frame is a length of four bytes, big-endian, and as much UTF-8 JSON. JSON and not pickle:
what a process sends must never run as code in the parent. The child imports this module,
so it needs the standard library only.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping
from typing import Any

HEADER = struct.Struct(">I")
MAX_FRAME = 16 * 2**20
"""Bytes that one frame may hold, in either direction."""
OUT_OF_MEMORY = 113
"""Exit code of a child that had not even the memory left to say so."""
CAUSES = frozenset({"exception", "load", "memory", "nan", "none", "size", "type"})
"""Causes of failures that a child reports itself."""


class Record(dict[str, Any]):
    """A dict whose keys are attributes too: `item["metadata"]` is `item.metadata`."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            known = ", ".join(map(str, self)) or "nothing"
            raise AttributeError(f"no {name!r} here; there is {known}") from None


class Channel:
    """The child's end: frames to and from the parent over an inherited socket."""

    def __init__(self, fd: int) -> None:
        # Programs that the user's code starts must not be able to answer in our place.
        os.set_inheritable(fd, False)
        self._fd = fd
        self._reader = open(fd, "rb", closefd=False)  # noqa: SIM115
        self._writer = open(fd, "wb", closefd=False)  # noqa: SIM115
        self._owner = os.getpid()
        os.register_at_fork(after_in_child=self._close)

    def receive(self) -> Any:
        """The next frame, its objects as Records. Ends the process when the parent has hung up."""
        header = self._reader.read(HEADER.size) if os.getpid() == self._owner else b""
        if len(header) < HEADER.size:
            os._exit(0)
        return json.loads(self._reader.read(*HEADER.unpack(header)), object_hook=Record)

    def send(self, message: Mapping[str, Any]) -> None:
        """Raises what `pack` raises."""
        if os.getpid() == self._owner:  # and not a fork by the user's code that came back here
            self._writer.write(pack(message))
            self._writer.flush()

    def _close(self) -> None:
        """In a forked child; else the parent would not notice when this process dies."""
        os.close(self._fd)


def pack(message: Mapping[str, Any]) -> bytes:
    """A frame. Raises ValueError if it is too large or holds NaN, TypeError if it is not JSON."""
    body = json.dumps(message, allow_nan=False).encode()
    if len(body) > MAX_FRAME:
        raise ValueError(f"{len(body):,} bytes of JSON are more than the limit of {MAX_FRAME:,}")
    return HEADER.pack(len(body)) + body
