"""Rollouts of a run: pages, heat map cells, and single rollouts."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import ColumnElement, Connection

from strop.errors import NotFound, RunError
from strop.store.queries.lists import Order, component, contains, parse_sort, read_page
from strop.store.queries.lookup import bounded, found_prompt, found_run, rollout_seq, sendable
from strop.store.rundir import RunDir
from strop.store.runfiles import folded, read_rollout
from strop.store.tables import prompts, runs
from strop.store.tables import rollouts as table
from strop.types import Json

Fields = dict[str, Json]

SORTS = ("step", "reward", "advantage", "length")
_SHOWN = (
    table.c.seq,
    table.c.step,
    table.c.sample,
    table.c.prompt,
    table.c.reward,
    table.c.advantage,
    table.c.components,
    table.c.stop_reason,
    table.c.cause,
    table.c.length,
    table.c.answer,
)


@dataclass(frozen=True)
class RolloutFilter:
    """Filter for the rollouts of a run; all conditions must hold."""

    step: int | None = None
    first: int | None = None
    """First step."""
    last: int | None = None
    """Last step."""
    row: str | None = None
    """Id of the prompt's row."""
    sample: int | None = None
    component: str | None = None
    """Reward component for bounds and sorting; None for the total reward."""
    min_reward: float | None = None
    max_reward: float | None = None
    failed: bool | None = None
    cause: str | None = None
    """Of the failure."""
    stop_reason: str | None = None
    search: str | None = None
    """Part of the prompt or the messages after it, case-insensitive."""


_ALL = RolloutFilter()


def rollouts_page(
    connection: Connection,
    run_id: str,
    filters: RolloutFilter = _ALL,
    *,
    sort: str = "step",
    limit: int = 50,
    after: str | None = None,
) -> list[Fields]:
    """Rollouts after the one with id `after`, without tokens. Raises NotFound for an unknown run, row or `after`,
    InvalidRequest for an unknown `sort`.
    """
    name, descending = parse_sort(sort, SORTS)
    key: ColumnElement[Any] = _reward(connection, filters) if name == "reward" else table.c[name]
    order = Order(key, table.c.seq, descending)
    run = found_run(connection, run_id)
    anchor = None
    if after is not None:
        here = sa.and_(table.c.seq == rollout_seq(after), table.c.run == run)
        anchor = connection.execute(sa.select(order.key, order.tie).where(here)).first()
        if anchor is None:
            raise _unknown(after)
    query = sa.select(*_SHOWN).where(*_conditions(connection, run, filters))
    rows = read_page(connection, query, order, limit, anchor and tuple(anchor))
    names = _row_ids(connection, {row.prompt for row in rows})
    return [_shown(row._asdict(), run_id, names[row.prompt]) for row in rows]


def count_rollouts(connection: Connection, run_id: str, filters: RolloutFilter = _ALL) -> int:
    """Total number of matching rollouts."""
    conditions = _conditions(connection, found_run(connection, run_id), filters)
    return connection.scalar(sa.select(sa.func.count()).select_from(table).where(*conditions)) or 0


def heat_map(
    connection: Connection, run_id: str, row: str, *, first: int | None = None, last: int | None = None
) -> list[Fields]:
    """Heat map cells of a prompt: each rollout by step and sample, with its id."""
    prompt = found_prompt(connection, found_run(connection, run_id), row)
    columns = [table.c[name] for name in ("step", "sample", "reward", "stop_reason", "cause", "seq")]
    query = sa.select(*columns).where(table.c.prompt == prompt).order_by(table.c.step, table.c.sample)
    if first is not None:
        query = query.where(table.c.step >= bounded(first))
    if last is not None:
        query = query.where(table.c.step <= bounded(last))
    names = ("step", "sample", "reward", "stop_reason", "cause")
    return [{**dict(zip(names, cell, strict=False)), "id": f"ro_{cell[-1]}"} for cell in connection.execute(query)]


def rollout(connection: Connection, rollout_id: str) -> Fields:
    """One rollout as shown in lists. Raises NotFound for an unknown id."""
    row = connection.execute(_placed(rollout_id)).first()
    if row is None:
        raise _unknown(rollout_id)
    fields = row._asdict()
    shown = {column.name: fields[column.name] for column in _SHOWN}
    return _shown(shown, fields["run_id"], fields["row"])


def whole_rollout(connection: Connection, data_folder: Path, rollout_id: str) -> Fields:
    """One rollout with messages, tokens and logs from the run folder. Raises NotFound for an unknown id, RunError if
    it is no longer in the folder.
    """
    row = connection.execute(_placed(rollout_id)).first()
    if row is None:
        raise _unknown(rollout_id)
    file = RunDir(data_folder / row.path).rollout_file(row.step)
    whole = read_rollout(file, row.offset, row.bytes)
    if (whole.get("step"), whole.get("row"), whole.get("sample")) != (row.step, row.row, row.sample):
        raise RunError(f"{file} was rewritten meanwhile; try again")
    return {"id": rollout_id, "run_id": row.run_id, **whole}


def _placed(rollout_id: str) -> sa.Select[Any]:
    """A rollout with its run, its row, and its place in a file."""
    columns = (table.c.offset, table.c.bytes, prompts.c.row, runs.c.id.label("run_id"), runs.c.path)
    query = sa.select(*_SHOWN, *columns).where(table.c.seq == rollout_seq(rollout_id))
    return query.join_from(table, prompts, table.c.prompt == prompts.c.seq).join(runs, table.c.run == runs.c.seq)


def _conditions(connection: Connection, run: int, filters: RolloutFilter) -> list[ColumnElement[bool]]:
    reward = _reward(connection, filters)
    pairs = (
        (filters.step, lambda value: table.c.step == bounded(value)),
        (filters.first, lambda value: table.c.step >= bounded(value)),
        (filters.last, lambda value: table.c.step <= bounded(value)),
        (filters.row, lambda value: table.c.prompt == found_prompt(connection, run, value)),
        (filters.sample, lambda value: table.c.sample == bounded(value)),
        (filters.min_reward, lambda value: reward >= value),
        (filters.max_reward, lambda value: reward <= value),
        (filters.failed, lambda value: table.c.cause.is_not(None) if value else table.c.cause.is_(None)),
        (filters.cause, lambda value: table.c.cause == sendable(value)),
        (filters.stop_reason, lambda value: table.c.stop_reason == sendable(value)),
        (filters.search or None, lambda value: _matches(run, value)),
    )
    return [table.c.run == run, *(condition(value) for value, condition in pairs if value is not None)]


def _reward(connection: Connection, filters: RolloutFilter) -> ColumnElement[float | None]:
    if filters.component is None:
        return table.c.reward
    return component(table.c.components, filters.component, connection.dialect.name)


def _matches(run: int, text: str) -> ColumnElement[bool]:
    asked = sa.select(prompts.c.seq).where(prompts.c.run == run, contains(prompts.c.search, folded(text)))
    return sa.or_(contains(table.c.search, folded(text)), table.c.prompt.in_(asked))


def _row_ids(connection: Connection, seqs: set[int]) -> dict[int, str]:
    query = sa.select(prompts.c.seq, prompts.c.row).where(prompts.c.seq.in_(seqs))
    return dict(connection.execute(query).all())


def _shown(fields: Fields, run_id: str, row: str) -> Fields:
    seq, _ = fields.pop("seq"), fields.pop("prompt")
    components = json.loads(fields.pop("components"))
    return {"id": f"ro_{seq}", "run_id": run_id, "row": row, **fields, "components": components}


def _unknown(rollout_id: str) -> NotFound:
    return NotFound(f"no rollout {rollout_id!r}", param="rollout_id")
