"""Pages of a data file for people: from a cursor on, without reading what is before it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from strop.data.faults import Refused
from strop.data.rows import build_row
from strop.data.strict_json import parse_object
from strop.errors import InvalidRequest, NotFound
from strop.types import Row

PAGE_BYTES = 1024 * 1024
"""Of rows on one page: the first one counts whatever its size."""
SCAN_BYTES = 32 * 1024 * 1024
"""Searched for one page at most."""

_CURSOR = re.compile(r"(\d{1,12})-(\d{1,15})")
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class RowPage:
    """Some rows, and the cursor of what follows; None at the end of the file."""

    rows: tuple[Row, ...]
    next: str | None


def read_page(path: Path, cursor: str | None, limit: int, search: str = "") -> RowPage:
    """The rows after a cursor, which the page before gave, that hold `search` in any case.

    A search may give up before the end: then the page is small, and its cursor goes on.
    Raises InvalidRequest for a cursor that is none of this file's, NotFound where the file is gone.
    """
    line, offset = _parsed(cursor)
    if not path.is_file():
        raise NotFound("the file of this data set is gone; upload it again, and delete this one")
    with open(path, "rb") as file:
        _go_to(file, offset)
        rows: list[Row] = []
        size, start, wanted = 0, offset, search.casefold()
        while len(rows) < limit and size < PAGE_BYTES and file.tell() - start < SCAN_BYTES:
            raw = file.readline()
            if not raw:
                return RowPage(tuple(rows), None)
            line += 1
            row = _row(line, raw, wanted)
            if row:
                rows.append(row)
                size += len(raw)
        ended = not file.read(1)
        return RowPage(tuple(rows), None if ended else f"{line}-{file.tell() - 1}")


def _parsed(cursor: str | None) -> tuple[int, int]:
    if cursor is None:
        return 0, 0
    match = _CURSOR.fullmatch(cursor)
    if match is None:
        raise InvalidRequest(f"{cursor!r} is not a valid cursor; use `next` of the previous page", param="after")
    return int(match[1]), int(match[2])


def _go_to(file: BinaryIO, offset: int) -> None:
    if offset == 0:
        return
    file.seek(offset - 1)
    if file.read(1) != b"\n":
        raise InvalidRequest("the cursor belongs to another file", param="after")


def _row(line: int, raw: bytes, wanted: str) -> Row | None:
    """The row of a line; None for a blank one, and for one that does not hold what is wanted.

    Uploads are checked, but a file edited on disk may hold invalid lines, which are skipped here.
    """
    text = raw.removeprefix(_BOM).decode("utf-8", "replace")
    if not text.strip() or wanted not in text.casefold():
        return None
    try:
        row = build_row(line, parse_object(text))
    except Refused:
        return None
    return row if isinstance(row, Row) else None
