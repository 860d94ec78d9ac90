"""Progress and resource use of a run."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean

import sqlalchemy as sa
from sqlalchemy import Connection

from strop.store.queries.curves import MAX_POINTS, series
from strop.store.queries.live import steps_after
from strop.store.tables import runs, steps

_RECENT = 20
"""Number of latest steps used to estimate the speed."""


@dataclass(frozen=True)
class Progress:
    """Progress of a run."""

    step: int
    total_steps: int | None
    """None until the data is loaded."""
    seconds_left: float | None
    """Estimate from the speed of the latest steps."""


def progress(connection: Connection, run_id: str) -> Progress | None:
    """Progress, or None for a run that is not in the database yet."""
    query = sa.select(runs.c.step, runs.c.total_steps).where(runs.c.id == run_id)
    row = connection.execute(query).first()
    if row is None:
        return None
    seconds = _seconds_a_step(connection, run_id, row.step)
    left = None if seconds is None or row.total_steps is None else seconds * max(row.total_steps - row.step, 0)
    return Progress(row.step, row.total_steps, left)


def sampled_tokens(connection: Connection, run_id: str) -> int:
    """Tokens sampled in training, including those of failed steps."""
    seq = connection.scalar(sa.select(runs.c.seq).where(runs.c.id == run_id))
    samples = connection.scalar(sa.select(sa.func.sum(steps.c.samples)).where(steps.c.run == seq, steps.c.step > 0))
    if seq is None or not samples:
        return 0
    lengths = series(connection, run_id, ["response_length"], first=1, points=MAX_POINTS)["response_length"]["values"]
    return round(samples * fmean(lengths)) if lengths else 0


def _seconds_a_step(connection: Connection, run_id: str, step: int) -> float | None:
    """Mean time of the latest steps."""
    newest = steps_after(connection, run_id, max(step - _RECENT, 0), _RECENT)
    timed = [[value for name, value in found["metrics"].items() if name.startswith("time/")] for found in newest]
    sums = [sum(values) for values in timed if values]
    return fmean(sums) if sums else None
