"""Prompts of a run, each with its results in the latest step that used it."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import ColumnElement, Connection

from strop.store.queries.lists import Order, component, contains, parse_sort, read_page
from strop.store.queries.lookup import found_prompt, found_run, sendable
from strop.store.runfiles import folded
from strop.store.tables import prompts as table
from strop.store.tables import rollouts
from strop.types import Json

Fields = dict[str, Json]

SORTS = ("line", "step", "reward", "best", "failed", "truncated")
_LATEST = ("step", "samples", "failed", "truncated", "reward", "best", "components", "answer")
_SHOWN = [table.c.row, table.c.line, table.c.preview, *(table.c[f"latest_{name}"].label(name) for name in _LATEST)]


@dataclass(frozen=True)
class PromptFilter:
    """Filter for the prompts of a run; all conditions must hold in the prompt's latest step."""

    component: str | None = None
    """Reward component for bounds and sorting; None for the total reward."""
    min_reward: float | None = None
    """Bound on the mean over the samples."""
    max_reward: float | None = None
    failed: bool | None = None
    """Whether a sample could not be scored."""
    cause: str | None = None
    """A sample failed with this cause."""
    stop_reason: str | None = None
    """A sample has this stop reason."""
    search: str | None = None
    """Part of the conversation or the row's id, case-insensitive."""


_ALL = PromptFilter()


def prompts_page(
    connection: Connection,
    run_id: str,
    filters: PromptFilter = _ALL,
    *,
    sort: str = "line",
    limit: int = 50,
    after: str | None = None,
) -> list[Fields]:
    """Prompts after the one of row `after`. Raises NotFound for an unknown run or `after`, InvalidRequest for an
    unknown `sort`.
    """
    name, descending = parse_sort(sort, SORTS)
    keys = {"line": table.c.line, "reward": _reward(connection, filters)}
    order = Order(keys[name] if name in keys else table.c[f"latest_{name}"], table.c.row, descending)
    run = found_run(connection, run_id)
    anchor = None
    if after is not None:
        here = table.c.seq == found_prompt(connection, run, after)
        anchor = tuple(connection.execute(sa.select(order.key, order.tie).where(here)).one())
    query = sa.select(*_SHOWN).where(*_conditions(connection, run, filters))
    rows = read_page(connection, query, order, limit, anchor)
    return [{**row._asdict(), "components": json.loads(row.components)} for row in rows]


def prompt_previews(connection: Connection, run_id: str, rows: Collection[str]) -> dict[str, str]:
    """Start of each row's prompt, by row id; rows that the run has not used are omitted."""
    run = found_run(connection, run_id)
    wanted = [sendable(row) for row in rows]
    query = sa.select(table.c.row, table.c.preview).where(table.c.run == run, table.c.row.in_(wanted))
    return dict(connection.execute(query).all())


def count_prompts(connection: Connection, run_id: str, filters: PromptFilter = _ALL) -> int:
    """Total number of matching prompts."""
    conditions = _conditions(connection, found_run(connection, run_id), filters)
    return connection.scalar(sa.select(sa.func.count()).select_from(table).where(*conditions)) or 0


def _conditions(connection: Connection, run: int, filters: PromptFilter) -> list[ColumnElement[bool]]:
    reward = _reward(connection, filters)
    pairs = (
        (filters.min_reward, lambda value: reward >= value),
        (filters.max_reward, lambda value: reward <= value),
        (filters.failed, lambda value: table.c.latest_failed > 0 if value else table.c.latest_failed == 0),
        (filters.cause, lambda value: _has(rollouts.c.cause == sendable(value))),
        (filters.stop_reason, lambda value: _has(rollouts.c.stop_reason == sendable(value))),
        (filters.search or None, lambda value: _matches(str(value))),
    )
    return [table.c.run == run, *(condition(value) for value, condition in pairs if value is not None)]


def _reward(connection: Connection, filters: PromptFilter) -> ColumnElement[Any]:
    if filters.component is None:
        return table.c.latest_reward
    return component(table.c.latest_components, filters.component, connection.dialect.name)


def _has(condition: ColumnElement[bool]) -> ColumnElement[bool]:
    """Whether a sample of the newest step is so."""
    newest = sa.and_(rollouts.c.prompt == table.c.seq, rollouts.c.step == table.c.latest_step)
    return sa.exists().where(newest, condition)


def _matches(text: str) -> ColumnElement[bool]:
    return sa.or_(contains(table.c.search, folded(text)), contains(table.c.row, folded(text)))
