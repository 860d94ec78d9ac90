"""Streaming zip archives: nothing is buffered in memory or on disk."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import BinaryIO
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

from strop.errors import NotFound
from strop.store.filetree import Entry, FileTree, chunks

LEFT_OUT = "LEFT_OUT.txt"
"""Lists files that were deleted while the archive was written."""
_DENSE = (".safetensors", ".pt", ".bin", ".zip", ".gz")
"""File endings of incompressible content."""


def zip_files(tree: FileTree, entries: Iterable[Entry], below: str = "") -> Iterator[bytes]:
    """Yield an archive of files, with names relative to the folder `below`.

    A file that grows meanwhile is read up to the size that it had when its turn came.
    """
    missing: list[str] = []
    sink = _Sink()
    with ZipFile(sink, "w") as archive:
        for entry in entries:
            try:
                file = tree.open(entry.path)
            except NotFound:
                missing.append(entry.path)
                continue
            yield from _add(archive, sink, _info(entry, below), file)
        if missing:
            archive.writestr(LEFT_OUT, "deleted while this archive was written:\n" + "\n".join(missing) + "\n")
    yield sink.take()


class _Sink:
    """A write-only file for ZipFile, without seek or tell."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: bytes, /) -> int:
        self._parts.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        """Nothing is open."""

    def take(self) -> bytes:
        """Return and clear the bytes written since the last call."""
        data = b"".join(self._parts)
        self._parts.clear()
        return data


def _add(archive: ZipFile, sink: _Sink, info: ZipInfo, file: BinaryIO) -> Iterator[bytes]:
    with archive.open(info, "w", force_zip64=True) as member:
        for chunk in chunks(file):
            member.write(chunk)
            yield sink.take()
    yield sink.take()


def _info(entry: Entry, below: str) -> ZipInfo:
    name = entry.path.removeprefix(f"{below}/") if below else entry.path
    info = ZipInfo(name, max(time.gmtime(entry.modified_at)[:6], (1980, 1, 1, 0, 0, 0)))
    info.compress_type = ZIP_STORED if name.endswith(_DENSE) else ZIP_DEFLATED
    info.external_attr = 0o600 << 16
    return info
