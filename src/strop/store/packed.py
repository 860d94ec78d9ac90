"""All metrics of a step in one value: numbers of 8 bytes, in the order of the run's list of names.

Metrics that come up later are added to the end of that list, so that a value may be shorter than
the list. A metric that a step lacks is NaN there, which no file can hold.
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
"""Eight of them are a NaN."""


def pack(metrics: Mapping[str, float], names: Sequence[str]) -> bytes:
    """The metrics of a step."""
    return struct.pack(f"<{len(names)}d", *[metrics.get(name, math.nan) for name in names])


def unpack(packed: Sequence[bytes], count: int, places: Iterable[int]) -> dict[int, list[float]]:
    """For places in the list of `count` names: the values of each in every step, NaN where a step lacks it."""
    size = count * _SIZE
    numbers = array("d", b"".join([value if len(value) == size else value.ljust(size, _MISSING) for value in packed]))
    if sys.byteorder == "big":
        numbers.byteswap()
    return {place: numbers[place::count].tolist() for place in places}


def width(size: int) -> int:
    """How many names a value of `size` bytes knows."""
    return size // _SIZE


def names_of(connection: Connection, run: int) -> list[str]:
    """The list of names of a run, which is named by its `seq`."""
    names: list[str] = json.loads(connection.scalar(sa.select(runs.c.metric_names).where(runs.c.seq == run)) or "[]")
    return names
