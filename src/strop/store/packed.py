"""All metrics of a step in one value: numbers of 8 bytes, in the order of the run's list of names.

Metrics that come up later are added to the end of that list, so that a value may be shorter than
the list. A metric that a step lacks is NaN there, which no file can hold.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping, Sequence

import sqlalchemy as sa
from sqlalchemy import Connection

from strop.store.tables import runs

_SIZE = 8
_MISSING = b"\xff" * _SIZE
"""A NaN."""


def pack(metrics: Mapping[str, float], names: Sequence[str]) -> bytes:
    """The metrics of a step."""
    return struct.pack(f"<{len(names)}d", *[metrics.get(name, math.nan) for name in names])


def unpack(packed: Sequence[bytes], count: int) -> list[Sequence[float]]:
    """For each of `count` names its value in every step, NaN where a step lacks it."""
    width = count * _SIZE
    whole = b"".join([value if len(value) == width else value.ljust(width, _MISSING[:1]) for value in packed])
    numbers = struct.unpack(f"<{len(packed) * count}d", whole)
    return [numbers[place::count] for place in range(count)]


def width(size: int) -> int:
    """How many names a value of `size` bytes knows."""
    return size // _SIZE


def names_of(connection: Connection, run: int) -> list[str]:
    """The list of names of a run, which is named by its `seq`."""
    names: list[str] = json.loads(connection.scalar(sa.select(runs.c.metric_names).where(runs.c.seq == run)) or "[]")
    return names
