"""The database: transactions, refusals, and one process that writes."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from databases import PostgresServer
from strop.errors import DatabaseError
from strop.store.db import Database, open_database
from strop.store.tables import keys


def key(name: str) -> sa.Insert:
    return keys.insert().values(id=f"key_{name}", created_at=0.0, name=name, hash=name, prefix="sk")


def names(database: Database) -> list[str]:
    with database.read() as connection:
        return list(connection.scalars(sa.select(keys.c.name).order_by(keys.c.seq)))


def test_what_was_written_is_there_after_opening_again(database: Database, database_url: str, tmp_path: Path) -> None:
    with database.write() as connection:
        connection.execute(key("a"))
    database.close()
    again = open_database(database_url, tmp_path)
    assert names(again) == ["a"]
    again.close()


def test_a_transaction_that_raises_leaves_nothing(database: Database) -> None:
    with pytest.raises(KeyError), database.write() as connection:
        connection.execute(key("a"))
        raise KeyError
    assert names(database) == []


@pytest.mark.parametrize("durable", [True, False])
def test_writes_of_either_kind_follow_one_another(durable: bool, database: Database) -> None:
    for name in "abc":
        with database.write(durable) as connection:
            connection.execute(key(name))
    assert names(database) == ["a", "b", "c"]


def test_a_connection_for_reading_cannot_write(database: Database) -> None:
    with pytest.raises(DBAPIError, match=r"(?i)read.?only"), database.read() as connection:
        connection.execute(key("a"))
    assert names(database) == []


def test_a_reader_sees_one_state_while_others_write(database: Database) -> None:
    count = sa.select(sa.func.count()).select_from(keys)
    with database.read() as connection:
        assert connection.scalar(count) == 0
        with database.write() as writing:
            writing.execute(key("a"))
        assert connection.scalar(count) == 0
    assert names(database) == ["a"]


def test_many_threads_write_one_after_another(database: Database) -> None:
    def write(number: int) -> None:
        for turn in range(5):
            with database.write(durable=False) as connection:
                connection.execute(key(f"{number}-{turn}"))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(names(database)) == 40


def test_a_file_that_is_no_database_is_refused_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "strop.db").write_bytes(b"nonsense" * 1000)
    with pytest.raises(DatabaseError, match=r"strop\.db: file is not a database"):
        open_database(None, tmp_path)


def test_the_password_of_a_database_that_does_not_answer_is_not_shown(tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match=r"127\.0\.0\.1") as caught:
        open_database("postgresql://joe:hunter2@127.0.0.1:1/x", tmp_path)
    assert "hunter2" not in caught.value.message


def test_an_address_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match="expected postgresql://"):
        open_database("no address", tmp_path)


def test_a_database_of_a_newer_version_is_refused(database: Database, database_url: str, tmp_path: Path) -> None:
    with database.write() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(DatabaseError, match="created by a newer version of strop"):
        open_database(database_url, tmp_path)


def test_a_postgresql_database_that_does_not_exist_is_named(postgres: PostgresServer, tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match='database "nowhere" does not exist'):
        open_database(postgres.url("nowhere"), tmp_path)
