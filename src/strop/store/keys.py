"""API keys: random, named, revocable. Only hashes are stored, so keys cannot be read back."""

from __future__ import annotations

import hashlib
import secrets
import time
from dataclasses import dataclass

import sqlalchemy as sa

from strop.errors import InvalidRequest, NotFound
from strop.store.db import Database
from strop.store.ids import new_id
from strop.store.tables import keys

PREFIX = "sk-strop-"
MAX_NAME = 64
_SHOWN = len(PREFIX) + 4
_USED_EVERY_S = 60.0

_SELECT = sa.select(keys.c.id, keys.c.name, keys.c.prefix, keys.c.created_at, keys.c.last_used_at, keys.c.revoked_at)


@dataclass(frozen=True)
class Key:
    """A key without its text. Times are seconds since 1970."""

    id: str
    name: str
    prefix: str
    """First characters, for recognition."""
    created_at: float
    last_used_at: float | None
    """Time of last use, to the minute."""
    revoked_at: float | None


class KeyStore:
    """The keys of a server."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def create(self, name: str) -> tuple[Key, str]:
        """Create a key and return it with its text, which is not stored. Raises InvalidRequest for an invalid name."""
        if not 1 <= len(name.strip()) <= MAX_NAME:
            raise InvalidRequest(f"a key needs a name of 1 to {MAX_NAME} characters, found {len(name)}", param="name")
        text = PREFIX + secrets.token_urlsafe(32)
        key = Key(new_id("key_"), name.strip(), text[:_SHOWN], time.time(), None, None)
        with self._database.write() as connection:
            connection.execute(keys.insert().values(**vars(key), hash=_hash(text)))
        return key, text

    def verify(self, text: str) -> Key | None:
        """The key with this text, or None if it is unknown or revoked. Records its use."""
        # The text has 256 random bits, so that how long looking up its hash takes tells nothing.
        query = _SELECT.where(keys.c.hash == _hash(text), keys.c.revoked_at.is_(None))
        with self._database.read() as connection:
            found = connection.execute(query).one_or_none()
        if found is None:
            return None
        key, now = Key(*found), time.time()
        if key.last_used_at is None or not 0 <= now - key.last_used_at < _USED_EVERY_S:
            with self._database.write(durable=False) as connection:
                connection.execute(keys.update().where(keys.c.id == key.id).values(last_used_at=now))
        return key

    def list(self) -> list[Key]:
        """All keys including revoked ones, newest first."""
        with self._database.read() as connection:
            return [Key(*row) for row in connection.execute(_SELECT.order_by(keys.c.seq.desc()))]

    def revoke(self, key_id: str) -> Key:
        """Revoke a key permanently. Raises NotFound for an unknown id; revoking twice has no effect."""
        change = keys.update().where(keys.c.id == key_id, keys.c.revoked_at.is_(None))
        with self._database.write() as connection:
            connection.execute(change.values(revoked_at=time.time()))
            found = connection.execute(_SELECT.where(keys.c.id == key_id)).one_or_none()
        if found is None:
            raise NotFound(f"no key {key_id!r}", param="key_id")
        return Key(*found)

    def any(self) -> bool:
        """Whether there is a key that is not revoked."""
        with self._database.read() as connection:
            return connection.execute(_SELECT.where(keys.c.revoked_at.is_(None)).limit(1)).first() is not None


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
