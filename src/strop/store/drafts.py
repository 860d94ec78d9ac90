"""Drafts: the settings of jobs that are not created yet."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from strop.errors import NotFound, TooLarge
from strop.store.db import Database
from strop.store.ids import new_id
from strop.store.tables import drafts
from strop.types import Json

MAX_BYTES = 8 * 1024 * 1024
KEPT_S = 90 * 24 * 3600.0
"""Drafts unchanged for this long are deleted when the next draft is created."""

_SELECT = sa.select(drafts.c.id, drafts.c.created_at, drafts.c.updated_at, drafts.c.content, drafts.c.job_id)


@dataclass(frozen=True)
class Draft:
    """A draft. Times are seconds since 1970."""

    id: str
    created_at: float
    updated_at: float
    content: Mapping[str, Json]
    job_id: str | None
    """Id of the job created from it."""


def new_draft_id() -> str:
    """A new draft id."""
    return new_id("draft_")


class DraftStore:
    """The drafts of a server."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def create(self, content: Mapping[str, Json], draft_id: str | None = None) -> Draft:
        """Store a new draft under an id from `new_draft_id`. Raises TooLarge above the size limit."""
        now = time.time()
        draft = Draft(draft_id or new_draft_id(), now, now, content, None)
        with self._database.write() as connection:
            connection.execute(drafts.delete().where(drafts.c.updated_at < now - KEPT_S))
            connection.execute(drafts.insert().values(**{**vars(draft), "content": _text(content)}))
        return draft

    def get(self, draft_id: str) -> Draft:
        """One draft. Raises NotFound for an unknown id."""
        with self._database.read() as connection:
            row = connection.execute(_SELECT.where(drafts.c.id == draft_id)).one_or_none()
        if row is None:
            raise _unknown(draft_id)
        return _draft(row)

    def list(self, limit: int = 20) -> list[Draft]:
        """Drafts without a job, most recently changed first."""
        query = _SELECT.where(drafts.c.job_id.is_(None)).order_by(drafts.c.updated_at.desc(), drafts.c.seq.desc())
        with self._database.read() as connection:
            return [_draft(row) for row in connection.execute(query.limit(limit))]

    def save(self, draft_id: str, content: Mapping[str, Json]) -> None:
        """Replace a draft's content. Raises TooLarge, or NotFound for an unknown id."""
        self._change(draft_id, content=_text(content), updated_at=time.time())

    def finish(self, draft_id: str, job_id: str) -> None:
        """Record the job created from a draft. The draft is no longer listed but can still be opened by its id."""
        self._change(draft_id, job_id=job_id)

    def delete(self, draft_id: str) -> None:
        """Delete a draft. Raises NotFound for an unknown id."""
        with self._database.write() as connection:
            if connection.execute(drafts.delete().where(drafts.c.id == draft_id)).rowcount == 0:
                raise _unknown(draft_id)

    def _change(self, draft_id: str, **values: str | float) -> None:
        with self._database.write() as connection:
            statement = drafts.update().where(drafts.c.id == draft_id).values(**values)
            if connection.execute(statement).rowcount == 0:
                raise _unknown(draft_id)


def _text(content: Mapping[str, Json]) -> str:
    text = json.dumps(content)  # escapes what a database cannot store
    if len(text) > MAX_BYTES:
        raise TooLarge(f"a draft may have at most {MAX_BYTES // 2**20} MiB; this one has {len(text) / 2**20:.0f}")
    return text


def _draft(row: Any) -> Draft:
    draft_id, created_at, updated_at, content, job_id = row
    return Draft(draft_id, created_at, updated_at, json.loads(content), job_id)


def _unknown(draft_id: str) -> NotFound:
    return NotFound(f"no draft {draft_id!r}: it was deleted, or is older than {KEPT_S / 86400:.0f} days", param="draft")
