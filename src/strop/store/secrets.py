"""Secrets: environment variables that rewards, judges and workers need.

They are encrypted in the database; the encryption key is in a separate file. A copy of the database alone reveals
nothing.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa
from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from strop.errors import DatabaseError, InvalidRequest, NotFound
from strop.store.db import Database
from strop.store.files import sync_folder
from strop.store.tables import secrets

MAX_VALUE_BYTES = 32 * 1024
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_VALUE = re.compile(r"[^\0\ud800-\udfff]+")


@dataclass(frozen=True)
class Secret:
    """A secret without its value. Times are seconds since 1970."""

    name: str
    created_at: float
    updated_at: float


class SecretStore:
    """The secrets of a server."""

    def __init__(self, database: Database, key_file: Path) -> None:
        """The key file is created with the first secret."""
        self._database = database
        self._key_file = key_file

    def set(self, name: str, value: str) -> Secret:
        """Store or replace a secret. Raises InvalidRequest if it cannot be an environment variable."""
        if not _NAME.fullmatch(name):
            raise InvalidRequest(f"{name!r} is not a valid environment variable name", param="name")
        if not _VALUE.fullmatch(value) or len(value.encode()) > MAX_VALUE_BYTES:
            problem = f"the value of {name} must be text of 1 to {MAX_VALUE_BYTES:,} bytes without NUL"
            raise InvalidRequest(problem, param="value")
        now = time.time()
        with self._database.write() as connection:
            known = connection.scalar(sa.select(sa.func.count()).select_from(secrets))
            # The name goes in too: nobody who can write the database makes one secret stand for another.
            encrypted = self._cipher(may_create=not known).encrypt(f"{name}={value}".encode())
            created = connection.scalar(sa.select(secrets.c.created_at).where(secrets.c.name == name))
            if created is None:
                connection.execute(secrets.insert().values(name=name, created_at=now, updated_at=now, value=encrypted))
            else:
                change = secrets.update().where(secrets.c.name == name)
                connection.execute(change.values(updated_at=now, value=encrypted))
        return Secret(name, now if created is None else created, now)

    def names(self) -> list[Secret]:
        """All secrets without their values, by name."""
        columns = (secrets.c.name, secrets.c.created_at, secrets.c.updated_at)
        with self._database.read() as connection:
            return [Secret(*row) for row in connection.execute(sa.select(*columns).order_by(secrets.c.name))]

    def delete(self, name: str) -> None:
        """Delete a secret. Raises NotFound for an unknown name."""
        with self._database.write() as connection:
            if connection.execute(secrets.delete().where(secrets.c.name == name)).rowcount == 0:
                raise _unknown(name)

    def reveal(self, names: Iterable[str]) -> dict[str, str]:
        """The values of some secrets, for the process that needs them.

        Raises NotFound for an unknown secret, DatabaseError if the key file is missing or has another key.
        """
        wanted = list(names)
        with self._database.read() as connection:
            query = sa.select(secrets.c.name, secrets.c.value).where(secrets.c.name.in_(wanted))
            stored = {name: bytes(value) for name, value in connection.execute(query)}
        return {name: self._decrypt(name, stored.get(name)) for name in wanted}

    def _decrypt(self, name: str, encrypted: bytes | None) -> str:
        if encrypted is None:
            raise _unknown(name)
        try:
            known, _, value = self._cipher().decrypt(encrypted).decode().partition("=")
        except InvalidToken:
            raise DatabaseError(
                f"{self._key_file}: does not contain the key that {name} was encrypted with; {_REMEDY}"
            ) from None
        if known != name:
            raise DatabaseError(f"the secret {name} contains the value of another secret; delete it and set it again")
        return value

    def _cipher(self, may_create: bool = False) -> MultiFernet:
        """The keys in the key file, one per line. The first encrypts."""
        if may_create and not self._key_file.exists():
            _create(self._key_file)
        try:
            with open(self._key_file, encoding="ascii") as file:
                mode = os.fstat(file.fileno()).st_mode
                keys = [Fernet(line) for line in file.read().split()]
        except FileNotFoundError:
            raise DatabaseError(f"{self._key_file}: missing, so no secret can be read; {_REMEDY}") from None
        except OSError as error:
            raise DatabaseError(f"{self._key_file}: {error.strerror}") from None
        except ValueError:
            raise DatabaseError(f"{self._key_file}: contains no valid key; {_REMEDY}") from None
        if mode & 0o077:
            raise DatabaseError(f"{self._key_file}: readable by other users; run `chmod 600 {self._key_file}`")
        if not keys:
            raise DatabaseError(f"{self._key_file}: empty; {_REMEDY}")
        return MultiFernet(keys)


_REMEDY = "restore it from a backup, or delete all secrets and set them again"


def _create(path: Path) -> None:
    """Atomically create a key file that only this user can read, regardless of the umask."""
    temporary = path.with_name(f".{path.name}.tmp")
    with suppress(FileNotFoundError):
        temporary.unlink()  # a kill left it
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(handle, "wb") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(Fernet.generate_key() + b"\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync_folder(path.parent)


def _unknown(name: str) -> NotFound:
    return NotFound(f"no secret {name!r}", param="name")
