"""How far a run has come, and what it has used."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import sqlalchemy as sa
from sqlalchemy import Connection

from strop.store.packed import unpack, width
from strop.store.tables import runs, steps

_RECENT = 20
"""Steps that the speed is taken from."""


@dataclass(frozen=True)
class Progress:
    """Where a run stands."""

    step: int
    total_steps: int | None
    """None until the data is loaded."""
    seconds_left: float | None
    """At the speed of the newest steps."""


def progress(connection: Connection, run_id: str) -> Progress | None:
    """None for a run that the database does not know (yet)."""
    query = sa.select(runs.c.seq, runs.c.step, runs.c.total_steps, runs.c.metric_names).where(runs.c.id == run_id)
    row = connection.execute(query).first()
    if row is None:
        return None
    names = json.loads(row.metric_names)
    newest = sa.select(steps.c.metrics).where(steps.c.run == row.seq).order_by(steps.c.step.desc()).limit(_RECENT)
    packed = list(connection.scalars(newest))
    seconds = _seconds_a_step(names, packed)
    left = None if seconds is None or row.total_steps is None else seconds * max(row.total_steps - row.step, 0)
    return Progress(row.step, row.total_steps, left)


def sampled_tokens(connection: Connection, run_id: str) -> int:
    """Tokens that the model said in training, those of steps that failed included."""
    run = connection.execute(sa.select(runs.c.seq, runs.c.metric_names).where(runs.c.id == run_id)).first()
    names = json.loads(run.metric_names) if run else []
    if run is None or "response_length" not in names:
        return 0
    rows = connection.execute(sa.select(steps.c.samples, steps.c.metrics).where(steps.c.run == run.seq)).all()
    column = _columns(names, [row.metrics for row in rows])[names.index("response_length")]
    lengths = zip(rows, column, strict=True)
    return round(math.fsum(row.samples * length for row, length in lengths if not math.isnan(length)))


def _seconds_a_step(names: Sequence[str], packed: Sequence[bytes]) -> float | None:
    """Mean over the steps of all that was timed in them."""
    places = [place for place, name in enumerate(names) if name.startswith("time/")]
    columns = _columns(names, packed)
    timed = [[column[step] for column in (columns[place] for place in places)] for step in range(len(packed))]
    sums = [sum(value for value in values if not math.isnan(value)) for values in timed]
    return fmean(sums) if sums else None


def _columns(names: Sequence[str], packed: Sequence[bytes]) -> list[Sequence[float]]:
    return unpack(packed, max([len(names), *(width(len(value)) for value in packed)]))
