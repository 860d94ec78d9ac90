"""Strict JSON Lines: read a file into objects and faults, line by line, in constant memory.

This module does not interpret rows. The file is read as bytes and split at newline bytes only, because
`str.splitlines` would split at U+2028 inside a string and text mode would guess an encoding.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from strop.data.faults import Fault, Refused
from strop.data.strict_json import nesting, parse_object
from strop.types import Json

MAX_LINE_BYTES = 8 * 1024 * 1024
"""Maximum line length in bytes, without the line ending."""

_SKIP_BYTES = 64 * 1024
_BOM = b"\xef\xbb\xbf"
_MAGIC = {
    b"\x1f\x8b": "gzip data",
    b"PK\x03\x04": "a zip archive",
    b"BZh": "bzip2 data",
    b"\xfd7zXZ": "xz data",
    b"\x28\xb5\x2f\xfd": "zstandard data",
    b"PAR1": "a Parquet file",
    b"\xff\xfe\x00\x00": "UTF-32 text",
    b"\x00\x00\xfe\xff": "UTF-32 text",
    b"\xff\xfe": "UTF-16 text",
    b"\xfe\xff": "UTF-16 text",
}
# JSON has no place for a carriage return between two objects, so this is a line end of its own.
_LONE_CR = re.compile(rb"\}[ \t]*\r[ \t\r]*\{")

Found = dict[str, Json] | Fault
"""A parsed line or its fault."""


def read_objects(path: str | Path, max_line_bytes: int = MAX_LINE_BYTES) -> Iterator[tuple[int, Found]]:
    """Yield the line number and the object or fault of every non-blank line of a file.

    Lines end at a newline byte only; U+2028 and similar characters are text. A byte order mark at the
    start and a carriage return before the newline are dropped. A problem with the whole file (cannot be opened, is
    not UTF-8, has no rows, changed while being read) is a fault on line 0. No file content raises an exception.
    """
    try:
        with open(path, "rb") as file:
            before = os.fstat(file.fileno())
            yield from _read_lines(file, max_line_bytes)
            if _changed(before, os.fstat(file.fileno())):
                yield 0, Fault(0, "file", "the file changed while it was read", "read it again once it is complete")
    except OSError as error:
        yield 0, Fault(0, "file", f"cannot be read: {error.strerror or error}", "check the path and its permissions")


def _changed(before: os.stat_result, after: os.stat_result) -> bool:
    """Whether a regular file was modified. A pipe is expected to change."""
    return stat.S_ISREG(before.st_mode) and (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns)


def _read_lines(file: BinaryIO, limit: int) -> Iterator[tuple[int, Found]]:
    """Yield the objects and faults of an open file."""
    seen = False
    for line, content in _split(file, limit):
        if isinstance(content, Fault):
            found: Found = content
        elif not content.strip():
            continue
        elif not seen and content.strip() in (b"[", b"{") and content.endswith(b"\n"):
            problem = f"line {line} is only {content.strip().decode()!r}: JSON spread over several lines"
            found = Fault(0, "layout", problem, "write each row on one line, for example with `jq -c`")
        else:
            found = _parse_line(line, content)
        seen = True
        yield line, found
        if isinstance(found, Fault) and found.line == 0:
            return
    if not seen:
        yield 0, Fault(0, "empty file", "no rows", "write one JSON object on each line")


def _split(file: BinaryIO, limit: int) -> Iterator[tuple[int, bytes | Fault]]:
    """Yield the number and bytes of each line, including the line ending, or a fault for a line that is too long."""
    line = 0
    while chunk := file.readline(limit + len(_BOM) + 2):
        line += 1
        if line == 1:
            foreign = _foreign(chunk)
            if foreign:
                yield 0, foreign
                return
            chunk = chunk.removeprefix(_BOM)
        size = len(_content(chunk))
        if size <= limit:
            yield line, chunk
            continue
        rest = chunk
        while not rest.endswith(b"\n") and (rest := file.readline(_SKIP_BYTES)):
            size += len(_content(rest))
        yield line, _too_long(line, chunk, size, limit)


def _content(line: bytes) -> bytes:
    """A line without its line ending."""
    return line.removesuffix(b"\n").removesuffix(b"\r")


def _foreign(head: bytes) -> Fault | None:
    """A fault if the first bytes show that a file is not UTF-8 text."""
    found = next((name for magic, name in _MAGIC.items() if head.startswith(magic)), None)
    # Without a byte order mark: JSON starts with ASCII, so every other byte is zero.
    zeros = tuple(byte == 0 for byte in head[:4])
    if zeros in ((True, False, True, False), (False, True, False, True)):
        found = "UTF-16 text"
    elif zeros in ((True, True, True, False), (False, True, True, True)):
        found = "UTF-32 text"
    if found is None:
        return None
    remedy = "save it as UTF-8" if found.endswith("text") else "unpack or convert it to JSON Lines"
    return Fault(0, "encoding", f"this is {found}", remedy)


def _too_long(line: int, chunk: bytes, size: int, limit: int) -> Fault:
    """A fault for a line that is too long."""
    if _LONE_CR.search(chunk):
        return _lone_cr().at(line)
    problem = f"{size:,} bytes on one line; the limit is {limit:,}"
    return Fault(line, "too long", problem, "shorten the row, or write each row on its own line")


def _lone_cr() -> Refused:
    return Refused("line ends", "rows are separated by carriage returns alone", "convert line ends to newlines")


def _parse_line(line: int, raw: bytes) -> Found:
    """Parse one line. Only the last line of a file may lack a newline."""
    content = _content(raw)
    try:
        if b"\r" in content and _LONE_CR.search(content):
            raise _lone_cr()
        return parse_object(_decode(content))
    except Refused as refused:
        unfinished = refused.kind in ("syntax", "encoding") and not raw.endswith(b"\n")
        if unfinished and nesting(content.decode("utf-8", "replace"))[1] > 0:
            problem = "the last line ends before its object is closed: the file looks cut off"
            return Fault(line, "cut off", problem, "copy or export the file again, or delete this line")
        return refused.at(line)


def _decode(content: bytes) -> str:
    """Decode a line."""
    nul = content.find(0)
    if nul >= 0:
        problem = f"a raw NUL at byte {nul + 1} of the line"
        raise Refused("nul", problem, r"write it as \u0000, or copy the file again if it is damaged")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        problem = f"byte 0x{content[error.start]:02x} at byte {error.start + 1} of the line is not UTF-8"
        raise Refused("encoding", problem, "save the file as UTF-8") from None
    if text.startswith("\ufeff"):
        raise Refused(
            "encoding", "a byte order mark inside the file", "remove it; concatenating files can leave such marks"
        )
    return text
