"""Paged lists in any order, with the same sorting on both databases and missing values last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import ColumnElement, Connection, Row, Select

from strop.errors import InvalidRequest
from strop.store.queries.lookup import sendable


@dataclass(frozen=True)
class Order:
    """Sort key of a list; equal items are ordered by the unique `tie`."""

    key: ColumnElement[Any]
    tie: ColumnElement[Any]
    descending: bool = False


def parse_sort(sort: str, keys: Sequence[str]) -> tuple[str, bool]:
    """Parse `reward` or `-reward` into the key and whether the highest comes first.

    Raises InvalidRequest for unknown keys.
    """
    key = sort.removeprefix("-")
    if key not in keys:
        raise InvalidRequest(
            f"cannot sort by {sort!r}; expected one of {', '.join(keys)}, each with - before it", param="sort"
        )
    return key, sort.startswith("-")


def read_page(
    connection: Connection, query: Select[Any], order: Order, limit: int, after: tuple[Any, Any] | None
) -> list[Row[Any]]:
    """At most `limit` rows after `after`, the key and tie of the last row of the previous page.

    Items without a key come last, with a separate query, so that an index is used for both.
    """
    rows: list[Row[Any]] = []
    if after is None or after[0] is not None:
        present = _behind(query.where(order.key.is_not(None)), (order.key, order.tie), order.descending, after)
        rows += connection.execute(present.limit(limit)).all()
    if len(rows) < limit:
        tie = None if after is None or after[0] is not None else (after[1],)
        absent = _behind(query.where(order.key.is_(None)), (order.tie,), order.descending, tie)
        rows += connection.execute(absent.limit(limit - len(rows))).all()
    return rows


def _behind(
    query: Select[Any], columns: tuple[ColumnElement[Any], ...], descending: bool, after: tuple[Any, ...] | None
) -> Select[Any]:
    if after is not None:
        here, there = sa.tuple_(*columns), sa.tuple_(*(sa.literal(value) for value in after))
        query = query.where(here < there if descending else here > there)
    return query.order_by(*(column.desc() if descending else column.asc() for column in columns))


def contains(column: ColumnElement[str], folded: str) -> ColumnElement[bool]:
    """Whether a case-folded column contains a case-folded text, without wildcards."""
    return column.contains(sendable(folded), autoescape=True)


def component(column: ColumnElement[str], name: str, dialect: str) -> ColumnElement[float | None]:
    """The number under a name in a JSON column, or null. On SQLite, names with quotes or backslashes give null,
    because its paths cannot express them.
    """
    if dialect == "sqlite":
        path = sendable(name).replace('"', "")
        return sa.func.json_extract(column, f'$."{path}"', type_=sa.Float(53))
    return sa.cast(sa.cast(column, sa.JSON).op("->>")(sendable(name)), sa.Float(53))
