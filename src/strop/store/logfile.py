"""Log files: pages of lines backwards from the end, and new lines forwards.

A line is identified by its byte offset. Terminal escape sequences are removed; for a line that is overwritten with
carriage returns, the last state is shown.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Level = Literal["debug", "info", "warning", "error"]

LEVELS: tuple[Level, ...] = ("debug", "info", "warning", "error")
MAX_SCAN_BYTES = 4 * 1024 * 1024
"""Maximum bytes read per page. With a filter, a page may therefore be smaller."""
MAX_LINE_CHARS = 8_000

_BLOCK_BYTES = 64 * 1024
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-_])")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_PATTERNS: tuple[tuple[Level, re.Pattern[str]], ...] = (
    ("error", re.compile(r"\b(?:CRITICAL|FATAL|ERROR)\b|\b\w*(?:Error|Exception)\b:|^(?:\S+ \S+ )?failed:|^  File \"")),
    ("warning", re.compile(r"\bWARN(?:ING)?\b|\b\w*Warning:")),
    ("debug", re.compile(r"\bDEBUG\b")),
)


@dataclass(frozen=True)
class LogLine:
    """One line of a log."""

    offset: int
    """Byte offset."""
    level: Level
    """Level, guessed from the text."""
    text: str


@dataclass(frozen=True)
class LogPage:
    """Consecutive lines, and the offsets to continue from."""

    lines: tuple[LogLine, ...]
    start: int
    """Offset of the first byte that was read; 0 if there are no older lines."""
    end: int
    """Offset after the last complete line."""
    size: int
    """Size of the file in bytes."""


@dataclass(frozen=True)
class LogFilter:
    """A filter for lines."""

    level: Level = "debug"
    """Minimum level."""
    text: str = ""
    """Part of a line, case-insensitive."""

    def keeps(self, line: LogLine) -> bool:
        """Whether a line matches."""
        return LEVELS.index(line.level) >= LEVELS.index(self.level) and self.text.casefold() in line.text.casefold()


class LogFile:
    """A log file that another process may be writing. A missing file is an empty log."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def before(self, end: int | None, count: int, wanted: LogFilter) -> LogPage:
        """The last `count` lines before byte `end`; by default, before the end of the file."""
        try:
            handle = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return LogPage((), 0, 0, 0)
        try:
            size = os.fstat(handle).st_size
            return _before(handle, size if end is None else min(end, size), size, count, wanted)
        finally:
            os.close(handle)

    def after(self, start: int, wanted: LogFilter) -> LogPage:
        """Complete lines from byte `start`, or from 0 if the file has become shorter."""
        try:
            with open(self._path, "rb") as file:
                size = file.seek(0, os.SEEK_END)
                start = start if start <= size else 0
                file.seek(start)
                data = file.read(min(size - start, MAX_SCAN_BYTES))
        except FileNotFoundError:
            return LogPage((), 0, 0, 0)
        whole = data.rfind(b"\n") + 1 or (len(data) if len(data) == MAX_SCAN_BYTES else 0)
        lines = [line for line in _lines(data[:whole], start) if wanted.keeps(line)]
        return LogPage(tuple(lines), start, start + whole, size)


def _before(handle: int, end: int, size: int, count: int, wanted: LogFilter) -> LogPage:
    """Read blocks backwards until there are enough lines."""
    found: list[LogLine] = []
    start, carry, whole = end, b"", end
    while start > 0 and end - start < MAX_SCAN_BYTES and len(found) <= count:
        step = min(_BLOCK_BYTES, start)
        start -= step
        block = os.pread(handle, step, start) + carry
        # The first line of a block may begin in the block before it.
        cut = block.find(b"\n") + 1 or len(block) if start else 0
        carry = block[:cut]
        lines = _lines(block[cut:], start + cut)
        if whole == end and lines and not block.endswith(b"\n"):
            whole = lines[-1].offset
        found = [line for line in lines if wanted.keeps(line)] + found
    if end - start == len(carry) > 0:  # a line without end, of which this is a part
        return LogPage(tuple(_lines(carry, start)), start, end, size)
    kept = found[-count:]
    return LogPage(tuple(kept), kept[0].offset if len(found) > count else start + len(carry), whole, size)


def _lines(data: bytes, offset: int) -> list[LogLine]:
    """Split bytes that start at `offset` into lines."""
    parts = data.split(b"\n")
    if not parts[-1]:
        parts.pop()
    offsets = itertools.accumulate((len(part) + 1 for part in parts[:-1]), initial=offset) if parts else ()
    texts = [_text(part) for part in parts]
    return [LogLine(*line) for line in zip(offsets, _levels(texts), texts, strict=True)]


def _text(raw: bytes) -> str:
    states = [state for state in raw.split(b"\r") if state]
    text = (states[-1] if states else b"").decode("utf-8", "replace")
    text = _CONTROLS.sub("", _ESCAPES.sub("", text))
    return text if len(text) <= MAX_LINE_CHARS else f"{text[:MAX_LINE_CHARS]} [{len(text) - MAX_LINE_CHARS} more]"


def _levels(texts: Sequence[str]) -> Iterator[Level]:
    """A level for each line. All lines of a traceback are errors, up to the line with the exception."""
    inside = False
    for text in texts:
        if text.startswith("Traceback (most recent call last)"):
            inside = True
            yield "error"
        elif inside:
            inside = not text or text.startswith((" ", "\t"))
            yield "error"
        else:
            yield next((level for level, pattern in _PATTERNS if pattern.search(text)), "info")
