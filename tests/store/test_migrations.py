"""Migrations make the very tables that the code names."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from databases import PostgresServer
from strop.store.db import Database, open_database
from strop.store.tables import metadata


def differences(database: Database) -> list[object]:
    with database.write() as connection:
        return list(compare_metadata(MigrationContext.configure(connection), metadata))


def indexes(database: Database) -> set[tuple[str, str, tuple[str | None, ...]]]:
    with database.write() as connection:
        inspector = sa.inspect(connection)
        return {
            (table, str(index["name"]), tuple(index["column_names"]))
            for table in metadata.tables
            for index in inspector.get_indexes(table)
            if not index["unique"]
        }


def test_migrations_and_tables_agree(database: Database) -> None:
    assert differences(database) == []
    assert indexes(database) == {
        (table.name, str(index.name), tuple(column.name for column in index.columns))
        for table in metadata.tables.values()
        for index in table.indexes
    }


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_an_empty_database_is_migrated_when_it_is_opened(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = None
    if kind == "postgresql":
        server: PostgresServer = request.getfixturevalue("postgres")
        url = server.create(migrated=False)
    for _ in range(2):  # the second time there is nothing to do
        database = open_database(url, tmp_path)
        assert differences(database) == []
        database.close()
