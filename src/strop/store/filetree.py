"""Safe access to the files in a folder: a path can never lead out of it.

Every path component is opened relative to the previous one and symbolic links are never followed, so swapping a
folder for a link between check and use has no effect. An open file stays readable after it is deleted.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from strop.errors import NotFound

CHUNK_BYTES = 256 * 1024
_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENXIO, errno.EACCES})


@dataclass(frozen=True)
class Entry:
    """A file, or a folder with its total size."""

    path: str
    """Path relative to the top folder, with slashes."""
    kind: Literal["file", "folder"]
    bytes: int
    files: int
    """1 for a file."""
    modified_at: float
    """Modification time in seconds since 1970; for a folder, that of its newest file."""


class FileTree:
    """A folder. Hidden names, links and special files are ignored."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def entries(self, folder: str = "") -> list[Entry]:
        """Entries of a folder by name, folders first, with total sizes.

        Raises NotFound for an unknown folder.
        """
        parts = _parts(folder) if folder else []
        handle = self._folder(parts)
        try:
            found = [_entry(handle, name, [*parts, name]) for name in _names(handle)]
        finally:
            os.close(handle)
        return sorted((entry for entry in found if entry), key=lambda entry: (entry.kind == "file", entry.path))

    def files(self, folder: str = "") -> list[Entry]:
        """All files below a folder, by path; empty for an unknown folder."""
        found: list[Entry] = []
        waiting = [folder]
        while waiting:
            with suppress(NotFound):  # a checkpoint may go while we look
                for entry in self.entries(waiting.pop()):
                    if entry.kind == "file":
                        found.append(entry)
                    else:
                        waiting.append(entry.path)
        return sorted(found, key=lambda entry: entry.path)

    def open(self, path: str) -> BinaryIO:
        """Open a file for reading. Raises NotFound if the folder has no such file."""
        *folders, name = _parts(path)
        handle = self._folder(folders)
        try:
            file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=handle)
        except (OSError, ValueError) as error:
            raise _refused(path, error) from None
        finally:
            os.close(handle)
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise _unknown(path)
        return open(file, "rb")

    def _folder(self, parts: list[str]) -> int:
        """An open handle of a subfolder."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        try:
            handle = os.open(self._path, flags)
        except OSError as error:
            raise _refused(self._path.name, error) from None
        for place, part in enumerate(parts):
            try:
                inner = os.open(part, flags | os.O_NOFOLLOW, dir_fd=handle)
            except (OSError, ValueError) as error:
                raise _refused("/".join(parts[: place + 1]), error) from None
            finally:
                os.close(handle)
            handle = inner
        return handle


def chunks(file: BinaryIO, size: int | None = None) -> Iterator[bytes]:
    """Yield at most `size` bytes of an open file, then close it."""
    with file:
        left = os.fstat(file.fileno()).st_size if size is None else size
        while left > 0 and (chunk := file.read(min(CHUNK_BYTES, left))):
            left -= len(chunk)
            yield chunk


def _parts(path: str) -> list[str]:
    """Split a path into names. Raises NotFound for `..`, hidden names and other invalid paths."""
    parts = path.split("/")
    if any(not part or part.startswith(".") or "\0" in part or not _is_text(part) for part in parts):
        raise _unknown(path)
    return parts


def _is_text(name: str) -> bool:
    """Whether a name can be encoded in JSON; names on disk may be any bytes."""
    return not any("\ud800" <= char <= "\udfff" for char in name)


def _names(handle: int) -> list[str]:
    return [name for name in os.listdir(handle) if not name.startswith(".") and _is_text(name)]


def _entry(folder: int, name: str, parts: list[str]) -> Entry | None:
    """The entry for a name in an open folder; None if it is ignored or deleted."""
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISREG(found.st_mode):
            return Entry("/".join(parts), "file", found.st_size, 1, found.st_mtime)
        if not stat.S_ISDIR(found.st_mode):
            return None
        handle = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return None
    try:
        inner = [entry for inner in _names(handle) if (entry := _entry(handle, inner, [*parts, inner]))]
    finally:
        os.close(handle)
    newest = max((entry.modified_at for entry in inner), default=found.st_mtime)
    size, count = sum(entry.bytes for entry in inner), sum(entry.files for entry in inner)
    return Entry("/".join(parts), "folder", size, count, newest)


def _refused(path: str, error: OSError | ValueError) -> Exception:
    """Convert errors for missing paths to NotFound; other I/O errors are raised."""
    return _unknown(path) if isinstance(error, ValueError) or error.errno in _ABSENT else error


def _unknown(path: str) -> NotFound:
    return NotFound(f"no file {path!r}", param="path")
