"""Fast bulk inserts for each database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Table


def insert_rows(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows that all have the same columns."""
    if not rows:
        return
    names = ", ".join(f'"{column}"' for column in rows[0])
    values = [tuple(row.values()) for row in rows]
    if connection.dialect.name == "sqlite":
        marks = ", ".join("?" * len(rows[0]))
        connection.exec_driver_sql(f"INSERT INTO {table.name} ({names}) VALUES ({marks})", values)
        return
    with connection.connection.cursor().copy(f"COPY {table.name} ({names}) FROM STDIN") as copy:
        for row in values:
            copy.write_row(row)
