"""All metrics of a step packed into one value: 8-byte floats in the order of the run's metric names.

New metrics are appended to the list of names, so a value may be shorter than the list. A missing metric is NaN,
which cannot occur in metrics.jsonl.
"""

from __future__ import annotations

import json
import math
import struct
import sys
from array import array
from collections.abc import Iterable, Mapping, Sequence

import sqlalchemy as sa
from sqlalchemy import Connection

from strop.store.tables import runs

_SIZE = 8
_MISSING = b"\xff"
"""Eight of these bytes are a NaN."""


def pack(metrics: Mapping[str, float], names: Sequence[str]) -> bytes:
    """The metrics of a step."""
    return struct.pack(f"<{len(names)}d", *[metrics.get(name, math.nan) for name in names])


def unpack(packed: Sequence[bytes], count: int, places: Iterable[int]) -> dict[int, list[float]]:
    """Values in every step for some indices of the name list; NaN if a step has no value."""
    size = count * _SIZE
    numbers = array("d", b"".join([value if len(value) == size else value.ljust(size, _MISSING) for value in packed]))
    if sys.byteorder == "big":
        numbers.byteswap()
    return {place: numbers[place::count].tolist() for place in places}


def width(size: int) -> int:
    """Number of metrics in a value of `size` bytes."""
    return size // _SIZE


def names_of(connection: Connection, run: int) -> list[str]:
    """The metric names of a run, given by its `seq`."""
    names: list[str] = json.loads(connection.scalar(sa.select(runs.c.metric_names).where(runs.c.seq == run)) or "[]")
    return names
