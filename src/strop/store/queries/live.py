"""What is new of a run, at a price that allows to ask every second."""

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


def stamp(connection: Connection, run_id: str) -> tuple[Json, ...]:
    """Values that change whenever something that the database says of a run does. NotFound for no run."""
    row = connection.execute(sa.select(*_STATUS).where(runs.c.id == sendable(run_id))).first()
    if row is None:
        raise unknown_run(run_id)
    newest = sa.select(steps.c.step, steps.c.digest).where(steps.c.run == row.seq).order_by(steps.c.step.desc())
    saved = sa.select(
        sa.func.count(),
        sa.func.max(checkpoints.c.created_at),
        sa.func.max(checkpoints.c.step).filter(checkpoints.c.best),
    ).where(checkpoints.c.run == row.seq)
    return (*row, *(connection.execute(newest.limit(1)).first() or ()), *connection.execute(saved).one())


def status(connection: Connection, run_id: str) -> dict[str, Json]:
    """Where a run stands. NotFound for no run."""
    names = ("state", "phase", "message", "step", "total_steps", "reward", "validation_reward", "updated_at")
    row = connection.execute(sa.select(*(runs.c[name] for name in names)).where(runs.c.id == sendable(run_id))).first()
    if row is None:
        raise unknown_run(run_id)
    return row._asdict()


def metrics_file(connection: Connection, run_id: str) -> int | None:
    """Another number whenever the steps of a run were written anew."""
    return connection.scalar(sa.select(runs.c.metrics_inode).where(runs.c.id == sendable(run_id)))


def newest_step(connection: Connection, run_id: str) -> int | None:
    """Number of the newest step; None before the first."""
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


def sparkline(connection: Connection, run_id: str, points: int) -> list[float | None]:
    """The mean reward of about `points` steps, evenly chosen, the newest among them."""
    run = found_run(connection, run_id)
    newest = connection.scalar(sa.select(sa.func.max(steps.c.step)).where(steps.c.run == run))
    if not newest:
        return []
    wanted = sorted({max(1, newest - place * newest // points) for place in range(points)})
    query = sa.select(steps.c.step, steps.c.reward).where(steps.c.run == run, steps.c.step.in_(wanted))
    found: dict[int, float | None] = dict(connection.execute(query).all())
    return [found[step] for step in wanted if step in found]


def _present(names: Sequence[str], values: Sequence[float]) -> Mapping[str, float]:
    return {name: value for name, value in zip(names, values, strict=True) if not math.isnan(value)}
