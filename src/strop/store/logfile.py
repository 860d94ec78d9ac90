"""Log files, read from their end: pages of lines backwards, and what is new forwards.

A line is named by the byte that it starts at. Escape sequences for terminals are taken out;
of a line that a program wrote over itself with carriage returns, the last state is shown.
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
"""Read for one page at most; where a filter finds less in it, the page is smaller."""
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
    """One line for people."""

    offset: int
    """Byte that it starts at."""
    level: Level
    """As far as its words tell."""
    text: str


@dataclass(frozen=True)
class LogPage:
    """Some lines in a row, and where to go on."""

    lines: tuple[LogLine, ...]
    start: int
    """Everything from here on was looked at; 0 when nothing older is left."""
    end: int
    """Up to here; a last line without its newline comes again once it is whole."""
    size: int
    """Of the file, in bytes."""


@dataclass(frozen=True)
class LogFilter:
    """Which lines to show."""

    level: Level = "debug"
    """The least that counts."""
    text: str = ""
    """Part of a line, in any case."""

    def keeps(self, line: LogLine) -> bool:
        """Whether to show a line."""
        return LEVELS.index(line.level) >= LEVELS.index(self.level) and self.text.casefold() in line.text.casefold()


class LogFile:
    """A log that another process may be writing. One that is not there yet is empty."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def before(self, end: int | None, count: int, wanted: LogFilter) -> LogPage:
        """The last `count` lines that end at byte `end`, by default at the end of the file."""
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
        """Whole lines from byte `start` on; from 0 where the file has become shorter than that."""
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
    """Read blocks backwards until there are lines enough."""
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
    """The lines of some bytes that start at `offset`."""
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
    """A level for each line; all of a traceback is an error, up to the line that names it."""
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
