"""Stored deployments. `api.deployments` loads the models."""

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
    """A row of the deployments table. Times are seconds since 1970."""

    seq: int
    id: str
    created_at: float
    name: str
    """The name for `model` in a chat request."""
    source: str
    """Catalogue name, Hugging Face id, folder, or checkpoint id."""
    path: str
    """What the model process loads: a path as in `DataFolder.stored`, or a model name that is not downloaded yet."""
    wanted: bool
    """Whether it should be loaded."""
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
        """Create a deployment, not loaded yet. Raises Conflict for a name in use."""
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
        """The deployment with a name or id, or None."""
        text = sendable(key)
        query = sa.select(deployments).where((deployments.c.name == text) | (deployments.c.id == text))
        with self._database.read() as connection:
            row = connection.execute(query.order_by(deployments.c.name != text)).mappings().first()
        return _stored(row) if row else None

    def get(self, key: str) -> StoredDeployment:
        """The deployment with a name or id. Raises NotFound for an unknown one."""
        found = self.find(key)
        if found is None:
            raise NotFound(f"no deployment {key!r}", param="deployment_id")
        return found

    def list(self, after: str | None, limit: int) -> Sequence[StoredDeployment]:
        """Deployments, newest first; `after` is the last id of the previous page. Raises NotFound for an unknown id."""
        query = sa.select(deployments).order_by(deployments.c.seq.desc()).limit(limit)
        if after is not None:
            query = query.where(deployments.c.seq < self.get(after).seq)
        return self._all(query)

    def wanted(self) -> Sequence[StoredDeployment]:
        """Deployments that should be loaded, most recently used first."""
        query = sa.select(deployments).where(deployments.c.wanted == "loaded")
        return self._all(query.order_by(deployments.c.last_used_at.desc(), deployments.c.seq.desc()))

    def want(self, deployment_id: str, loaded: bool) -> None:
        """Set whether a deployment should be loaded."""
        self._change(deployment_id, wanted="loaded" if loaded else "unloaded")

    def place(self, deployment_id: str, source: str, path: str) -> StoredDeployment:
        """Set the target of a deployment. Raises NotFound if it was deleted meanwhile."""
        self._change(deployment_id, source=source, path=path)
        return self.get(deployment_id)

    def count(self, deployment_id: str, prompt_tokens: int, completion_tokens: int) -> None:
        """Add the token usage of a request."""
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
        """Delete a deployment."""
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
