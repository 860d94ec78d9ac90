"""Metrics of a run over its steps, smoothed and downsampled for display."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from strop.errors import InvalidRequest
from strop.store.packed import names_of, unpack
from strop.store.queries.lookup import found_run
from strop.store.tables import steps

MAX_POINTS = 10_000
_PORTION = 256

Curve = dict[str, list[Any]]
"""`steps`, `values` and `smoothed`, of equal length."""

REFERENCE_METRICS = (
    "reward",
    "reward_group_std",
    "frac_reward_zero_std",
    "response_length",
    "response_length_clip_ratio",
    "kl_loss",
    "entropy",
    "grad_norm",
)
"""Metric names of hosted reinforcement fine-tuning services."""


def metric_names(connection: Connection, run_id: str) -> list[str]:
    """Metric names of a run, in order of first occurrence."""
    return names_of(connection, found_run(connection, run_id))


def series(
    connection: Connection,
    run_id: str,
    names: Sequence[str] | None = None,
    *,
    first: int | None = None,
    last: int | None = None,
    points: int = 500,
    smoothing: float = 0.0,
) -> dict[str, Curve]:
    """Curves by name, or all curves. Unknown names have empty curves.

    `smoothing` in [0, 1) is the weight of the past in a debiased moving average over all steps of the run. Steps
    `first` to `last` are then selected and downsampled to about `points`, keeping extremes. Raises InvalidRequest for
    values out of range.
    """
    if not 0 <= smoothing < 1:
        raise InvalidRequest(f"smoothing is {smoothing}; it has to be at least 0 and below 1", param="smoothing")
    if not 2 <= points <= MAX_POINTS:
        raise InvalidRequest(f"points is {points}; it has to be from 2 to {MAX_POINTS}", param="points")
    run = found_run(connection, run_id)
    known = names_of(connection, run)
    wanted = known if names is None else dict.fromkeys(names)
    places = {name: known.index(name) for name in wanted if name in known}
    taken, columns = _columns(connection, run, len(known), places.values())
    empty: Curve = {"steps": [], "values": [], "smoothed": []}
    return {
        name: _curve(taken, columns[places[name]], first, last, points, smoothing) if name in places else empty
        for name in wanted
    }


def latest_metrics(connection: Connection, run_id: str) -> dict[str, float]:
    """The latest value of each metric."""
    run = found_run(connection, run_id)
    return newest_metrics(connection, run, names_of(connection, run))


def newest_metrics(connection: Connection, run: int, names: Iterable[str]) -> dict[str, float]:
    """The latest values of some metrics of a run, given by its `seq`."""
    known = names_of(connection, run)
    found: dict[str, float] = {}
    query = sa.select(steps.c.step, steps.c.metrics).where(steps.c.run == run).order_by(steps.c.step.desc())
    missing = {name for name in names if name in known}
    before = 2**31 - 1
    while missing:
        rows = connection.execute(query.where(steps.c.step < before).limit(_PORTION)).all()
        if not rows:
            break
        before = rows[-1].step
        columns = unpack([row.metrics for row in rows], len(known), range(len(known)))
        for name in list(missing):
            value = next((value for value in columns[known.index(name)] if not math.isnan(value)), None)
            if value is not None:
                found[name] = value
                missing.discard(name)
    return {name: found[name] for name in known if name in found}


def reference_metrics(curves: Mapping[str, Curve]) -> dict[str, dict[str, Curve]]:
    """`training_metrics` and `validation_metrics` under the names of hosted services."""
    return {
        kind: {
            name: {"steps": curve["steps"], "values": curve["values"]}
            for name in REFERENCE_METRICS
            if (curve := curves.get(f"{prefix}{name}")) and curve["steps"]
        }
        for kind, prefix in (("training_metrics", ""), ("validation_metrics", "validation/"))
    }


def smoothed(values: Sequence[float], weight: float) -> list[float]:
    """Debiased moving average in which the past has `weight`."""
    if not weight:
        return list(values)
    fresh, average = 1 - weight, 0.0
    averages = [average := average * weight + value * fresh for value in values]
    decay = 1.0
    for place, average in enumerate(averages):
        decay *= weight
        if decay < 1e-17:
            break
        averages[place] = average / (1 - decay)
    return averages


def thinned(values: Sequence[float], points: int) -> list[int]:
    """Indices of about `points` values: the first, the last, and both extremes of each window."""
    count = len(values)
    if count <= points:
        return list(range(count))
    stretches = max((points - 2) // 2, 1)
    places = {0, count - 1}
    for stretch in range(stretches):
        start, end = count * stretch // stretches, count * (stretch + 1) // stretches
        part = values[start:end]
        places |= {start + part.index(min(part)), start + part.index(max(part))}
    return sorted(places)


def _columns(
    connection: Connection, run: int, count: int, places: Iterable[int]
) -> tuple[list[int], dict[int, list[float]]]:
    query = sa.select(steps.c.step, steps.c.metrics).where(steps.c.run == run).order_by(steps.c.step)
    taken: list[int] = []
    packed: list[bytes] = []
    found = connection.execute(query)
    while rows := found.fetchmany(_PORTION):  # few rows at a time leave the garbage collector asleep
        for step, metrics in rows:
            taken.append(step)
            packed.append(metrics)
    return taken, unpack(packed, count, places)


def _curve(
    taken: Sequence[int],
    column: Sequence[float],
    first: int | None,
    last: int | None,
    points: int,
    smoothing: float,
) -> Curve:
    if math.isnan(sum(column)):  # some steps lack it
        present = [place for place, value in enumerate(column) if value == value]
        taken, column = [taken[place] for place in present], [column[place] for place in present]
    averages = smoothed(column, smoothing)
    start = 0 if first is None else bisect_left(taken, first)
    end = len(taken) if last is None else bisect_right(taken, last)
    places = [start + place for place in thinned(column[start:end], points)]
    return {
        "steps": [taken[place] for place in places],
        "values": [column[place] for place in places],
        "smoothed": [averages[place] for place in places],
    }
