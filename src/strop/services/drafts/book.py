"""Drafts being edited: changed in memory at once, and on disk shortly after.

Every page of a draft sees the same one. What was typed is written as soon as the write before it
is done, so that a burst of keys costs a few writes and the newest content is never left behind.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from strop.errors import StropError
from strop.services.container import Services
from strop.services.drafts.base_model_test import ModelTest
from strop.services.drafts.draft import JobDraft
from strop.store.drafts import DraftStore, new_draft_id

log = logging.getLogger("strop.server")

_KEPT = 200
"""Drafts in memory that are on disk as well."""


@dataclass(frozen=True)
class Unfinished:
    """A saved draft. Times are seconds since 1970."""

    id: str
    draft: JobDraft
    updated_at: float


@dataclass
class _Live:
    """A draft in memory."""

    draft: JobDraft
    stored: JobDraft | None
    """Content on disk; None before the first write."""
    problem: str = ""
    """Why it could not be written."""
    writing: asyncio.Task[None] | None = field(default=None, compare=False)


class Book:
    """The drafts of a server, for its event loop."""

    @classmethod
    def of(cls, services: Services) -> Book:
        """The book over the drafts of a server's database."""
        return cls(DraftStore(services.database))

    def __init__(self, store: DraftStore) -> None:
        self._store = store
        self._live: dict[str, _Live] = {}
        self.tests: dict[str, ModelTest] = {}
        """The newest test of each draft, while the server runs."""

    def begin(self, draft: JobDraft) -> str:
        """A new draft; its id."""
        draft_id = new_draft_id()
        self._keep(draft_id, _Live(draft, None))
        self._write(draft_id)
        return draft_id

    async def open(self, draft_id: str) -> tuple[JobDraft, str | None]:
        """A draft, and the id of the job that was made of it. NotFound for an unknown one."""
        live = self._live.get(draft_id)
        if live is not None:
            return live.draft, None
        found = await asyncio.to_thread(self._store.get, draft_id)
        draft = JobDraft.model_validate(found.content)
        if found.job_id is None and draft_id not in self._live:
            self._keep(draft_id, _Live(draft, draft))
        return draft, found.job_id

    async def unfinished(self, limit: int) -> list[Unfinished]:
        """Drafts that no job was made of, the one that changed last first."""
        found = await asyncio.to_thread(self._store.list, limit)
        return [Unfinished(one.id, JobDraft.model_validate(one.content), one.updated_at) for one in found]

    def draft(self, draft_id: str) -> JobDraft:
        """A draft that is open."""
        return self._live[draft_id].draft

    def change(self, draft_id: str, how: Callable[[JobDraft], JobDraft]) -> None:
        """Change an open draft."""
        live = self._live.get(draft_id)
        if live is None:
            return  # it was finished, or deleted, on another page
        live.draft = how(live.draft)
        self._write(draft_id)

    def problem(self, draft_id: str) -> str | None:
        """Empty where all of a draft is on disk, None while it is being written, else why it is not."""
        live = self._live.get(draft_id)
        if live is None or live.draft == live.stored:
            return ""
        return live.problem or None

    async def finish(self, draft_id: str, job_id: str) -> None:
        """Note that a job was made of it."""
        await self._close(draft_id)
        await asyncio.to_thread(self._store.finish, draft_id, job_id)

    async def delete(self, draft_id: str) -> None:
        """Drop a draft. NotFound for an unknown one."""
        await self._close(draft_id)
        await asyncio.to_thread(self._store.delete, draft_id)

    async def settle(self, draft_id: str) -> None:
        """Wait until a draft is on disk, or cannot be."""
        live = self._live.get(draft_id)
        while live is not None and live.writing is not None:
            await asyncio.shield(live.writing)

    async def close(self) -> None:
        """End the tests, and write everything that is not on disk yet."""
        for test in self.tests.values():
            await test.stop()
        for draft_id in list(self._live):
            await self.settle(draft_id)

    async def _close(self, draft_id: str) -> None:
        """Stop the background work of a draft and drop it from memory."""
        if draft_id in self.tests:
            await self.tests.pop(draft_id).stop()
        await self.settle(draft_id)
        self._live.pop(draft_id, None)

    def _keep(self, draft_id: str, live: _Live) -> None:
        self._live[draft_id] = live
        for known in list(self._live)[:-_KEPT]:
            if self._live[known].draft == self._live[known].stored:
                del self._live[known]

    def _write(self, draft_id: str) -> None:
        live = self._live[draft_id]
        if live.writing is None:
            live.writing = asyncio.create_task(self._save(draft_id, live))

    async def _save(self, draft_id: str, live: _Live) -> None:
        try:
            while live.draft != live.stored:
                draft = live.draft
                content = draft.model_dump(mode="json")
                if live.stored is None:
                    await asyncio.to_thread(self._store.create, content, draft_id)
                else:
                    await asyncio.to_thread(self._store.save, draft_id, content)
                live.stored, live.problem = draft, ""
        except StropError as error:
            live.problem = error.message
        except Exception:  # the database is away, or full
            live.problem = "the database is unreachable or the disk is full"
            log.exception("%s cannot be saved", draft_id)
        finally:
            live.writing = None
