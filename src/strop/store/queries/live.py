"""Cheap queries for changes of a run, suitable for polling every second."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import sqlalchemy as sa
from sqlalchemy import Connection

from strop.store.packed import names_of, unpack
from strop.store.queries.lookup import found_run, sendable, unknown_run
from strop.store.tables import checkpoints, runs, steps
from strop.types import Json

_STATUS = (
    runs.c.seq,
    runs.c.name,
    runs.c.state,
    runs.c.phase,
    runs.c.message,
    runs.c.step,
    runs.c.total_steps,
    runs.c.updated_at,
    runs.c.metrics_inode,
)

Stamp = tuple[Json, ...]


def stamp(connection: Connection, run_id: str) -> Stamp:
    """Values that change whenever the stored data of a run changes. Raises NotFound for an unknown run."""
    found = stamps(connection, [run_id])
    if not found:
        raise unknown_run(run_id)
    return found[run_id]


def stamps(connection: Connection, run_ids: Sequence[str]) -> dict[str, Stamp]:
    """The stamps of existing runs."""
    asked = sa.select(runs.c.id, *_STATUS).where(runs.c.id.in_([sendable(run_id) for run_id in run_ids]))
    rows = connection.execute(asked).all()
    seqs = [row.seq for row in rows]
    newest = sa.select(steps.c.run, steps.c.step, steps.c.digest).where(
        sa.tuple_(steps.c.run, steps.c.step).in_(_newest_steps(connection, seqs).items())
    )
    step = {row.run: tuple(row) for row in connection.execute(newest)}
    saved = sa.select(
        checkpoints.c.run,
        sa.func.count(),
        sa.func.max(checkpoints.c.created_at),
        sa.func.max(checkpoints.c.step).filter(checkpoints.c.best),
    ).where(checkpoints.c.run.in_(seqs))
    kept = {row.run: tuple(row) for row in connection.execute(saved.group_by(checkpoints.c.run))}
    return {row.id: (*row, step.get(row.seq), kept.get(row.seq)) for row in rows}


def _newest_steps(connection: Connection, seqs: Sequence[int]) -> dict[int, int]:
    """Number of the latest step of each run that has steps."""
    # Not grouped: a database reads the end of an index for each run, but all steps for a group.
    newest = sa.select(sa.func.max(steps.c.step)).where(steps.c.run == runs.c.seq).scalar_subquery()
    rows = connection.execute(sa.select(runs.c.seq, newest).where(runs.c.seq.in_(seqs))).all()
    return {run: step for run, step in rows if step is not None}


def status(connection: Connection, run_id: str) -> dict[str, Json]:
    """Status of a run. Raises NotFound for an unknown run."""
    names = ("state", "phase", "message", "step", "total_steps", "reward", "validation_reward", "updated_at")
    row = connection.execute(sa.select(*(runs.c[name] for name in names)).where(runs.c.id == sendable(run_id))).first()
    if row is None:
        raise unknown_run(run_id)
    return row._asdict()


def metrics_file(connection: Connection, run_id: str) -> int | None:
    """A number that changes whenever the steps of a run are rewritten."""
    return connection.scalar(sa.select(runs.c.metrics_inode).where(runs.c.id == sendable(run_id)))


def newest_step(connection: Connection, run_id: str) -> int | None:
    """Number of the latest step; None before the first."""
    query = sa.select(sa.func.max(steps.c.step)).where(steps.c.run == found_run(connection, run_id))
    newest: int | None = connection.scalar(query)
    return newest


def steps_after(connection: Connection, run_id: str, after: int, limit: int) -> list[dict[str, Json]]:
    """The first `limit` steps after a step, each with its metrics."""
    run = found_run(connection, run_id)
    names = names_of(connection, run)
    shown = [steps.c[name] for name in ("step", "prompts", "samples", "failed", "truncated", "reward", "metrics")]
    query = sa.select(*shown).where(steps.c.run == run, steps.c.step > after).order_by(steps.c.step).limit(limit)
    rows = connection.execute(query).all()
    columns = unpack([row.metrics for row in rows], len(names), range(len(names)))
    return [
        {**row._asdict(), "metrics": _present(names, [columns[place][index] for place in range(len(names))])}
        for index, row in enumerate(rows)
    ]


def sparklines(connection: Connection, run_ids: Sequence[str], points: int) -> dict[str, list[float | None]]:
    """Mean reward of about `points` evenly spaced steps of each run, including the latest."""
    asked = sa.select(runs.c.seq, runs.c.id).where(runs.c.id.in_([sendable(run_id) for run_id in run_ids]))
    names: dict[int, str] = dict(connection.execute(asked).all())
    found: dict[str, list[float | None]] = {name: [] for name in names.values()}
    for run, newest in _newest_steps(connection, list(names)).items():
        # One query for each: all of their steps in one can be more parameters than a database takes.
        wanted = {max(1, newest - place * newest // points) for place in range(points)}
        query = sa.select(steps.c.reward).where(steps.c.run == run, steps.c.step.in_(wanted)).order_by(steps.c.step)
        found[names[run]] = list(connection.scalars(query))
    return found


def _present(names: Sequence[str], values: Sequence[float]) -> Mapping[str, float]:
    return {name: value for name, value in zip(names, values, strict=True) if not math.isnan(value)}
