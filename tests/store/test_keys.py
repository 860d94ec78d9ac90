"""API keys: shown once, stored as a hash, revocable."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from strop.errors import InvalidRequest, NotFound
from strop.store.db import Database, open_database
from strop.store.keys import KeyStore
from strop.store.tables import keys


def set_last_used(database: Database, when: float) -> None:
    with database.write() as connection:
        connection.execute(keys.update().values(last_used_at=when))


def test_a_key_is_verified_by_its_text(database: Database) -> None:
    store = KeyStore(database)
    key, text = store.create("laptop")
    other, _ = store.create("cluster")
    assert text.startswith(key.prefix)
    found = store.verify(text)
    assert found is not None
    assert (found.id, found.name) == (key.id, "laptop")
    assert [listed.id for listed in store.list()] == [other.id, key.id]


@pytest.mark.parametrize("text", ["", "sk-strop-", "sk-strop-wrong", "sk-strop-\udcff", "sk-strop-\0"])
def test_another_text_is_no_key(database: Database, text: str) -> None:
    store = KeyStore(database)
    store.create("laptop")
    assert store.verify(text) is None


def test_the_database_does_not_hold_the_text(tmp_path: Path) -> None:
    database = open_database(None, tmp_path)
    _, text = KeyStore(database).create("laptop")
    database.close()
    stored = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert b"laptop" in stored
    assert text.encode() not in stored


def test_a_revoked_key_opens_nothing_and_stays_listed(database: Database) -> None:
    store = KeyStore(database)
    key, text = store.create("laptop")
    assert store.any()
    revoked = store.revoke(key.id)
    assert revoked.revoked_at is not None
    assert store.verify(text) is None
    assert not store.any()
    assert store.list() == [revoked]
    assert store.revoke(key.id) == revoked


def test_an_unknown_key_cannot_be_revoked(database: Database) -> None:
    with pytest.raises(NotFound, match="no key 'key_0'"):
        KeyStore(database).revoke("key_0")


def test_use_is_noted_once_a_minute(database: Database) -> None:
    store = KeyStore(database)
    _, text = store.create("laptop")
    store.verify(text)
    first = store.list()[0].last_used_at
    assert first is not None
    store.verify(text)
    assert store.list()[0].last_used_at == first
    set_last_used(database, first - 61)
    store.verify(text)
    assert (store.list()[0].last_used_at or 0) >= first


def test_use_is_noted_although_the_clock_was_put_back(database: Database) -> None:
    store = KeyStore(database)
    key, text = store.create("laptop")
    set_last_used(database, key.created_at + 86_400)
    store.verify(text)
    assert (store.list()[0].last_used_at or 0) < key.created_at + 86_400


@pytest.mark.parametrize("name", ["", "  ", "x" * 65])
def test_a_key_needs_a_name(database: Database, name: str) -> None:
    with pytest.raises(InvalidRequest, match="needs a name"):
        KeyStore(database).create(name)
    with database.read() as connection:
        assert connection.scalar(sa.select(sa.func.count()).select_from(keys)) == 0
