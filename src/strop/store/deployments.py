"""Deployments as the database keeps them. `api.deployments` is what loads models."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import RowMapping

from strop.errors import NotFound
from strop.store.db import Database
from strop.store.ids import new_id
from strop.store.names import unique_name
from strop.store.queries.lookup import sendable
from strop.store.tables import deployments
from strop.types import Json


@dataclass(frozen=True)
class StoredDeployment:
    """A row of the deployments table at one moment. Times are seconds since 1970."""

    seq: int
    id: str
    created_at: float
    name: str
    """What `model` of a chat request says."""
    source: str
    """Catalogue name, hub id, folder, or id of a checkpoint."""
    path: str
    """What the model process loads: as `DataFolder.stored`, or a name that is still to be fetched."""
    wanted: bool
    """Whether it is to be in memory."""
    settings: Mapping[str, Json]
    last_used_at: float | None
    requests: int
    prompt_tokens: int
    completion_tokens: int


class DeploymentStore:
    """The deployments table."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    def create(self, name: str, source: str, path: str, settings: Mapping[str, Json]) -> StoredDeployment:
        """A new deployment, not loaded yet. Conflict for a name in use."""
        values = {
            "id": new_id("dep_"),
            "created_at": self._clock(),
            "name": name,
            "source": source,
            "path": path,
            "wanted": "unloaded",
            "settings": json.dumps(settings),
        }
        with unique_name(name), self._database.write() as connection:
            row = connection.execute(sa.insert(deployments).values(values).returning(deployments)).mappings().one()
            return _stored(row)

    def find(self, key: str) -> StoredDeployment | None:
        """By name or id."""
        text = sendable(key)
        query = sa.select(deployments).where((deployments.c.name == text) | (deployments.c.id == text))
        with self._database.read() as connection:
            row = connection.execute(query.order_by(deployments.c.name != text)).mappings().first()
        return _stored(row) if row else None

    def get(self, key: str) -> StoredDeployment:
        """By name or id. NotFound where there is none."""
        found = self.find(key)
        if found is None:
            raise NotFound(f"no deployment {key!r}", param="deployment_id")
        return found

    def list(self, after: str | None, limit: int) -> Sequence[StoredDeployment]:
        """Newest first; `after` is the id of the last one of the page before. NotFound for that id."""
        query = sa.select(deployments).order_by(deployments.c.seq.desc()).limit(limit)
        if after is not None:
            query = query.where(deployments.c.seq < self.get(after).seq)
        return self._all(query)

    def wanted(self) -> Sequence[StoredDeployment]:
        """Those that are to be in memory, the last used first."""
        query = sa.select(deployments).where(deployments.c.wanted == "loaded")
        return self._all(query.order_by(deployments.c.last_used_at.desc(), deployments.c.seq.desc()))

    def want(self, deployment_id: str, loaded: bool) -> None:
        """Note whether it is to be in memory."""
        self._change(deployment_id, wanted="loaded" if loaded else "unloaded")

    def place(self, deployment_id: str, source: str, path: str) -> StoredDeployment:
        """Note what it now stands for. NotFound where it was deleted meanwhile."""
        self._change(deployment_id, source=source, path=path)
        return self.get(deployment_id)

    def count(self, deployment_id: str, prompt_tokens: int, completion_tokens: int) -> None:
        """Add a request to what it has answered."""
        columns = deployments.c
        values = {
            "last_used_at": self._clock(),
            "requests": columns.requests + 1,
            "prompt_tokens": columns.prompt_tokens + prompt_tokens,
            "completion_tokens": columns.completion_tokens + completion_tokens,
        }
        with self._database.write(durable=False) as connection:
            connection.execute(sa.update(deployments).where(columns.id == deployment_id).values(values))

    def delete(self, deployment_id: str) -> None:
        """Forget one."""
        with self._database.write() as connection:
            connection.execute(sa.delete(deployments).where(deployments.c.id == deployment_id))

    def _change(self, deployment_id: str, **values: Any) -> None:
        with self._database.write() as connection:
            connection.execute(sa.update(deployments).where(deployments.c.id == deployment_id).values(values))

    def _all(self, query: sa.Select[Any]) -> Sequence[StoredDeployment]:
        with self._database.read() as connection:
            return [_stored(row) for row in connection.execute(query).mappings()]


def _stored(row: RowMapping) -> StoredDeployment:
    values = {**row, "wanted": row["wanted"] == "loaded", "settings": json.loads(row["settings"])}
    return StoredDeployment(**values)
