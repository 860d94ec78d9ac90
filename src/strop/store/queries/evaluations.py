"""Rows of one evaluation, page by page, or of two evaluations, side by side."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import ColumnElement, Connection, FromClause

from strop.errors import NotFound
from strop.store.queries.lists import Order, contains, parse_sort, read_page
from strop.store.queries.lookup import sendable
from strop.store.rollout_lines import upgraded
from strop.store.tables import evaluation_rows, evaluations, tasks
from strop.types import Json

Fields = dict[str, Json]

ROW_SORTS = ("line", "reward", "passed")
PAIR_SORTS = ("change", "line", "base", "other")
_COLUMNS = tuple(column.name for column in evaluation_rows.c)
_PLAIN = ("row", "line", "prompt", "reward", "passed", "samples", "failure")


@dataclass(frozen=True)
class RowFilter:
    """Filter for rows; all conditions must hold."""

    failed: bool | None = None
    min_reward: float | None = None
    max_reward: float | None = None
    search: str | None = None
    """Part of the start of the prompt; case-sensitive for non-ASCII letters."""


_ALL = RowFilter()


def evaluation_results(connection: Connection, evaluation_id: str) -> list[Fields]:
    """Results of all rows without their rollouts."""
    seq = found_evaluation(connection, evaluation_id)
    columns = [evaluation_rows.c[name] for name in ("row", "reward", "passed", "samples", "components")]
    query = sa.select(*columns).where(evaluation_rows.c.evaluation == seq).order_by(evaluation_rows.c.line)
    return [_decoded(row) for row in connection.execute(query).mappings()]


def evaluation_rows_page(
    connection: Connection,
    evaluation_id: str,
    filters: RowFilter = _ALL,
    *,
    sort: str = "line",
    limit: int = 50,
    after: str | None = None,
) -> list[Fields]:
    """Rows with their rollouts, after the row with id `after`. Raises NotFound for an unknown evaluation or row,
    InvalidRequest for an unknown `sort`.
    """
    name, descending = parse_sort(sort, ROW_SORTS)
    seq = found_evaluation(connection, evaluation_id)
    table = evaluation_rows
    query = sa.select(table).where(table.c.evaluation == seq, *_conditions(filters))
    order = Order(table.c[name], table.c.row, descending)
    place = None
    if after is not None:
        place = _place(connection, sa.select(order.key, order.tie).where(table.c.evaluation == seq), table, after)
    return [_decoded(row._mapping) for row in read_page(connection, query, order, limit, place)]


def evaluation_row(connection: Connection, evaluation_id: str, row: str) -> Fields:
    """One row with its answers. NotFound for an unknown evaluation or row."""
    seq = found_evaluation(connection, evaluation_id)
    table = evaluation_rows
    query = sa.select(table).where(table.c.evaluation == seq, table.c.row == sendable(row))
    found = connection.execute(query).mappings().first()
    if found is None:
        raise NotFound(f"no row {row!r} in evaluation {evaluation_id}", param="row")
    return _decoded(found)


def paired_page(
    connection: Connection,
    base_id: str,
    other_id: str,
    *,
    sort: str = "-change",
    limit: int = 50,
    after: str | None = None,
) -> list[Fields]:
    """Rows of both evaluations: `base` and `other` with their rollouts, and the `change` of reward.

    `change` is None if one of them could not be scored; such rows come last. Raises the same errors as above.
    """
    name, descending = parse_sort(sort, PAIR_SORTS)
    base, other = evaluation_rows.alias("base"), evaluation_rows.alias("other")
    of_base, of_other = (found_evaluation(connection, name) for name in (base_id, other_id))
    keys = {
        "change": other.c.reward - base.c.reward,
        "line": base.c.line,
        "base": base.c.reward,
        "other": other.c.reward,
    }
    query = (
        sa.select(
            *(base.c[column].label(f"base_{column}") for column in _COLUMNS),
            *(other.c[column].label(f"other_{column}") for column in _COLUMNS),
            keys["change"].label("change"),
        )
        .select_from(base.join(other, base.c.row == other.c.row))
        .where(base.c.evaluation == of_base, other.c.evaluation == of_other)
    )
    order = Order(keys[name], base.c.row, descending)
    place = None
    if after is not None:
        wanted = query.with_only_columns(order.key, order.tie, maintain_column_froms=True)
        place = _place(connection, wanted, base, after)
    return [_pair(row._mapping) for row in read_page(connection, query, order, limit, place)]


def found_evaluation(connection: Connection, evaluation_id: str) -> int:
    """The `seq` of an evaluation. Raises NotFound for an unknown id."""
    seq = connection.scalar(
        sa.select(tasks.c.seq).join_from(tasks, evaluations).where(tasks.c.id == sendable(evaluation_id))
    )
    if seq is None:
        raise NotFound(f"no evaluation {evaluation_id!r}", param="evaluation_id")
    return int(seq)


def _conditions(filters: RowFilter) -> list[ColumnElement[bool]]:
    table = evaluation_rows
    conditions: list[ColumnElement[bool]] = []
    if filters.failed is not None:
        conditions.append(table.c.failure.is_not(None) if filters.failed else table.c.failure.is_(None))
    if filters.min_reward is not None:
        conditions.append(table.c.reward >= filters.min_reward)
    if filters.max_reward is not None:
        conditions.append(table.c.reward <= filters.max_reward)
    if filters.search:
        conditions.append(contains(sa.func.lower(table.c.prompt), filters.search.lower()))
    return conditions


def _place(connection: Connection, query: sa.Select[Any], table: FromClause, row: str) -> tuple[Any, Any]:
    found = connection.execute(query.where(table.c.row == sendable(row))).first()
    if found is None:
        raise NotFound(f"no row {row!r} in the evaluation", param="after")
    return found[0], found[1]


def _pair(found: Mapping[Any, Any]) -> Fields:
    base, other = (_decoded({name: found[f"{side}_{name}"] for name in _COLUMNS}) for side in ("base", "other"))
    return {"row": base["row"], "line": base["line"], "change": found["change"], "base": base, "other": other}


def _decoded(row: Mapping[Any, Any]) -> Fields:
    fields = {name: row[name] for name in _PLAIN if name in row} | {"components": json.loads(row["components"])}
    if "rollouts" not in row:
        return fields
    stored: Fields = json.loads(row["rollouts"])
    if "answers" in stored:  # as older versions wrote it
        stored = {"prompt": stored["prompt"], "rollouts": [upgraded(answer) for answer in stored["answers"]]}
    return fields | stored
