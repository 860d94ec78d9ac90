"""Runs: lists, details, steps and checkpoints."""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from strop.errors import NotFound
from strop.store.queries.curves import REFERENCE_METRICS, latest_metrics, reference_metrics, series
from strop.store.queries.lists import Order, contains, parse_sort, read_page
from strop.store.queries.lookup import bounded, found_run, sendable, unknown_run
from strop.store.runfiles import folded
from strop.store.tables import checkpoints as checkpoint_table
from strop.store.tables import prompts, steps
from strop.store.tables import runs as run_table
from strop.types import Json

Fields = dict[str, Json]

_SORTS = ("created_at", "updated_at", "name", "model", "state", "step", "reward", "validation_reward")
_RUN = (
    run_table.c.id,
    run_table.c.created_at,
    run_table.c.updated_at,
    run_table.c.path,
    run_table.c.name,
    run_table.c.model,
    run_table.c.state,
    run_table.c.phase,
    run_table.c.message,
    run_table.c.step,
    run_table.c.total_steps,
    run_table.c.reward,
    run_table.c.validation_reward,
)
_STEP = (
    steps.c.step,
    steps.c.prompts,
    steps.c.samples,
    steps.c.failed,
    steps.c.truncated,
    steps.c.reward,
    steps.c.damage,
)
_CHECKPOINT = [
    run_table.c.id.label("run_id"),
    run_table.c.path.label("run_path"),
    *(column for column in checkpoint_table.c if column.name not in ("seq", "run")),
]
_CHECKPOINTS = sa.select(*_CHECKPOINT).join_from(checkpoint_table, run_table)


def runs(
    connection: Connection,
    *,
    state: str | None = None,
    search: str | None = None,
    sort: str = "-created_at",
    limit: int = 100,
    after: str | None = None,
) -> list[Fields]:
    """Runs after the one with id `after`; `search` matches a part of name, model or id.

    Raises NotFound for an unknown `after`, InvalidRequest for an unknown `sort`.
    """
    key, descending = parse_sort(sort, _SORTS)
    query = sa.select(*_RUN)
    if state is not None:
        query = query.where(run_table.c.state == sendable(state))
    if search:
        parts = (sa.func.lower(run_table.c[name]) for name in ("name", "model", "id"))
        query = query.where(sa.or_(*(contains(part, folded(search)) for part in parts)))
    order = Order(run_table.c[key], run_table.c.id, descending)
    anchor = None
    if after is not None:
        anchor = connection.execute(sa.select(order.key, order.tie).where(run_table.c.id == sendable(after))).first()
        if anchor is None:
            raise unknown_run(after)
    return [row._asdict() for row in read_page(connection, query, order, limit, anchor and tuple(anchor))]


def run(connection: Connection, run_id: str) -> Fields:
    """A run with its configuration, counts and metrics. Raises NotFound for an unknown id."""
    query = sa.select(*_RUN, run_table.c.config, run_table.c.facts).where(run_table.c.id == sendable(run_id))
    row = connection.execute(query).first()
    if row is None:
        raise unknown_run(run_id)
    seq = found_run(connection, run_id)
    counts = sa.select(
        sa.func.coalesce(sa.func.sum(steps.c.samples), 0).label("rollouts"),
        sa.func.coalesce(sa.func.sum(steps.c.failed), 0).label("failed"),
    ).where(steps.c.run == seq)
    names = [f"{prefix}{name}" for prefix in ("", "validation/") for name in REFERENCE_METRICS]
    return {
        **row._asdict(),
        "config": json.loads(row.config),
        "facts": json.loads(row.facts),
        **connection.execute(counts).one()._asdict(),
        "prompts": connection.scalar(sa.select(sa.func.count()).where(prompts.c.run == seq)),
        "metrics": {
            "latest": latest_metrics(connection, run_id),
            **reference_metrics(series(connection, run_id, names)),
        },
    }


def steps_page(
    connection: Connection,
    run_id: str,
    *,
    first: int | None = None,
    last: int | None = None,
    sort: str = "step",
    limit: int = 100,
    after: int | None = None,
) -> list[Fields]:
    """Summaries of the steps from `first` to `last`; `after` is the number of a step."""
    _, descending = parse_sort(sort, ("step",))
    query = sa.select(*_STEP).where(steps.c.run == found_run(connection, run_id))
    if first is not None:
        query = query.where(steps.c.step >= bounded(first))
    if last is not None:
        query = query.where(steps.c.step <= bounded(last))
    if after is not None:
        query = query.where(steps.c.step < bounded(after) if descending else steps.c.step > bounded(after))
    query = query.order_by(steps.c.step.desc() if descending else steps.c.step.asc()).limit(limit)
    return [row._asdict() for row in connection.execute(query)]


def checkpoints(connection: Connection, run_id: str) -> list[Fields]:
    """The checkpoints of a run, oldest first. `path` is relative to the folder of the run."""
    query = _CHECKPOINTS.where(checkpoint_table.c.run == found_run(connection, run_id))
    return [row._asdict() for row in connection.execute(query.order_by(checkpoint_table.c.step))]


def checkpoint(connection: Connection, checkpoint_id: str) -> Fields:
    """One checkpoint. Raises NotFound for an unknown or deleted one."""
    row = connection.execute(_CHECKPOINTS.where(checkpoint_table.c.id == sendable(checkpoint_id))).first()
    if row is None:
        raise NotFound(f"no checkpoint {checkpoint_id!r}", param="checkpoint_id")
    return row._asdict()


def all_checkpoints(connection: Connection, *, limit: int = 100, after: str | None = None) -> list[Fields]:
    """The checkpoints of all runs, newest first."""
    order = Order(checkpoint_table.c.created_at, checkpoint_table.c.id, descending=True)
    anchor: Any = None
    if after is not None:
        anchor = (checkpoint(connection, after)["created_at"], after)
    return [row._asdict() for row in read_page(connection, _CHECKPOINTS, order, limit, anchor)]
