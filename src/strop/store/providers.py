"""Providers: named OpenAI-compatible endpoints, each with the secret that holds its API key."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

import sqlalchemy as sa

from strop.errors import InvalidRequest, NotFound
from strop.store.db import Database
from strop.store.tables import providers

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class Provider:
    """An endpoint. Times are seconds since 1970."""

    name: str
    base_url: str
    """Base URL, including `/v1`."""
    api_key_env: str | None
    """Name of the secret with the API key; None if the endpoint requires none."""
    created_at: float
    updated_at: float


class ProviderStore:
    """The providers of a server."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def set(self, name: str, base_url: str, api_key_env: str | None = None) -> Provider:
        """Store or replace a provider.

        Raises InvalidRequest for an invalid name. The caller has checked the base URL.
        """
        if not _NAME.fullmatch(name):
            problem = f"{name!r} is not a valid provider name; use 1 to 64 letters, digits, dots, dashes or underscores"
            raise InvalidRequest(problem, param="name")
        now = time.time()
        values = {"base_url": base_url, "api_key_env": api_key_env, "updated_at": now}
        with self._database.write() as connection:
            change = providers.update().where(providers.c.name == name).values(values)
            if connection.execute(change).rowcount == 0:
                connection.execute(providers.insert().values(name=name, created_at=now, **values))
            return _get(connection, name)

    def list(self) -> list[Provider]:
        """All of them, by name."""
        with self._database.read() as connection:
            return [Provider(*row) for row in connection.execute(_SELECT.order_by(providers.c.name))]

    def get(self, name: str) -> Provider:
        """One provider. Raises NotFound for an unknown name."""
        with self._database.read() as connection:
            return _get(connection, name)

    def delete(self, name: str) -> None:
        """Delete a provider.

        Graders and evaluations that use it keep its base URL. Raises NotFound for an unknown name.
        """
        with self._database.write() as connection:
            if connection.execute(providers.delete().where(providers.c.name == name)).rowcount == 0:
                raise _unknown(name)


_SELECT = sa.select(
    providers.c.name,
    providers.c.base_url,
    providers.c.api_key_env,
    providers.c.created_at,
    providers.c.updated_at,
)


def _get(connection: sa.Connection, name: str) -> Provider:
    row = connection.execute(_SELECT.where(providers.c.name == name)).one_or_none()
    if row is None:
        raise _unknown(name)
    return Provider(*row)


def _unknown(name: str) -> NotFound:
    return NotFound(f"no provider {name!r}", param="name")
