"""Secrets: encrypted at rest, the key in a file of its own."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from cryptography.fernet import Fernet

from strop.errors import DatabaseError, InvalidRequest, NotFound
from strop.store.db import Database, open_database
from strop.store.secrets import MAX_VALUE_BYTES, SecretStore
from strop.store.tables import secrets


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    return tmp_path / "secret.key"


@pytest.fixture
def store(database: Database, key_file: Path) -> SecretStore:
    return SecretStore(database, key_file)


@pytest.fixture(params=[0o000, 0o022, 0o777])
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def test_a_secret_is_revealed_to_who_names_it(store: SecretStore) -> None:
    store.set("API_TOKEN", "grün=ß\n")
    store.set("OTHER", "x")
    assert store.reveal(["API_TOKEN"]) == {"API_TOKEN": "grün=ß\n"}
    assert store.reveal([]) == {}
    assert [secret.name for secret in store.names()] == ["API_TOKEN", "OTHER"]


def test_setting_again_replaces_the_value(store: SecretStore) -> None:
    first = store.set("API_TOKEN", "old")
    second = store.set("API_TOKEN", "new")
    assert second.created_at == first.created_at
    assert store.reveal(["API_TOKEN"]) == {"API_TOKEN": "new"}
    assert store.names() == [second]


def test_a_deleted_secret_is_gone(store: SecretStore) -> None:
    store.set("API_TOKEN", "x")
    store.delete("API_TOKEN")
    assert store.names() == []
    for missing in (lambda: store.reveal(["API_TOKEN"]), lambda: store.delete("API_TOKEN")):
        with pytest.raises(NotFound, match="no secret 'API_TOKEN'"):
            missing()


def test_neither_database_nor_key_file_hold_a_value(tmp_path: Path) -> None:
    database = open_database(None, tmp_path)
    SecretStore(database, tmp_path / "secret.key").set("API_TOKEN", "rosebud-rosebud")
    database.close()
    stored = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert b"API_TOKEN" in stored
    assert b"rosebud" not in stored


def test_only_the_owner_can_read_the_key_whatever_the_umask(store: SecretStore, key_file: Path, umask: None) -> None:
    store.set("API_TOKEN", "x")
    assert stat.S_IMODE(key_file.stat().st_mode) == 0o600
    assert store.reveal(["API_TOKEN"]) == {"API_TOKEN": "x"}


def test_a_key_that_others_can_read_is_refused(store: SecretStore, key_file: Path) -> None:
    store.set("API_TOKEN", "x")
    key_file.chmod(0o640)
    with pytest.raises(DatabaseError, match=r"secret.key: readable by other users; run `chmod 600"):
        store.reveal(["API_TOKEN"])


def test_a_kill_while_the_key_is_made_does_not_matter(store: SecretStore, key_file: Path) -> None:
    key_file.with_name(".secret.key.tmp").write_text("half")
    store.set("API_TOKEN", "x")
    assert store.reveal(["API_TOKEN"]) == {"API_TOKEN": "x"}


def test_a_lost_key_is_said_and_not_made_anew_over_stored_secrets(store: SecretStore, key_file: Path) -> None:
    store.set("API_TOKEN", "x")
    key_file.unlink()
    for attempt in (lambda: store.reveal(["API_TOKEN"]), lambda: store.set("OTHER", "y")):
        with pytest.raises(DatabaseError, match=r"secret.key: missing, so no secret can be read; restore it"):
            attempt()
    assert not key_file.exists()
    store.delete("API_TOKEN")
    store.set("OTHER", "y")
    assert store.reveal(["OTHER"]) == {"OTHER": "y"}


@pytest.mark.parametrize("content", ["", "not a key\n", "ü"])
def test_a_damaged_key_is_said(store: SecretStore, key_file: Path, content: str) -> None:
    store.set("API_TOKEN", "x")
    key_file.write_text(content)
    with pytest.raises(DatabaseError, match=r"secret.key: (empty|contains no valid key); restore it"):
        store.reveal(["API_TOKEN"])


def test_a_key_of_another_server_is_said(store: SecretStore, key_file: Path) -> None:
    store.set("API_TOKEN", "rosebud")
    key_file.write_bytes(Fernet.generate_key())
    with pytest.raises(DatabaseError, match=r"does not contain the key that API_TOKEN was encrypted with") as caught:
        store.reveal(["API_TOKEN"])
    assert "rosebud" not in str(caught.value)


def test_an_older_key_still_reads_once_a_new_one_stands_before_it(store: SecretStore, key_file: Path) -> None:
    store.set("API_TOKEN", "x")
    key_file.write_bytes(Fernet.generate_key() + b"\n" + key_file.read_bytes())
    store.set("OTHER", "y")
    assert store.reveal(["API_TOKEN", "OTHER"]) == {"API_TOKEN": "x", "OTHER": "y"}


def test_one_secret_cannot_be_made_to_stand_for_another(store: SecretStore, database: Database) -> None:
    store.set("HARMLESS", "x")
    store.set("API_TOKEN", "rosebud")
    with database.write() as connection:
        value = connection.scalar(sa.select(secrets.c.value).where(secrets.c.name == "API_TOKEN"))
        connection.execute(secrets.update().where(secrets.c.name == "HARMLESS").values(value=value))
    with pytest.raises(DatabaseError, match="the secret HARMLESS contains the value of another secret"):
        store.reveal(["HARMLESS"])


@pytest.mark.parametrize("name", ["", "1ST", "A-B", "A B", "A=B", "Ä", "A\n", "A\0", "A" * 129])
def test_a_name_must_fit_an_environment_variable(store: SecretStore, name: str) -> None:
    with pytest.raises(InvalidRequest, match="is not a valid environment variable name"):
        store.set(name, "x")


@pytest.mark.parametrize("value", ["", "rosebud\0", "rosebud\ud800", "rosebud" * MAX_VALUE_BYTES])
def test_a_value_must_fit_an_environment_variable(store: SecretStore, value: str) -> None:
    with pytest.raises(InvalidRequest, match="the value of TOKEN must be text of 1 to 32,768 bytes") as caught:
        store.set("TOKEN", value)
    assert "rosebud" not in str(caught.value)
