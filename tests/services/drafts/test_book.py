from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from strop.errors import NotFound, TooLarge
from strop.services.drafts.book import Book
from strop.services.drafts.draft import JobDraft
from strop.store.db import Database, open_database
from strop.store.drafts import Draft, DraftStore


def renamed(draft: JobDraft, name: str) -> JobDraft:
    return draft.model_copy(update={"name": name})


def named(name: str) -> JobDraft:
    return JobDraft(name=name)


def test_what_is_changed_is_seen_at_once_and_stored_a_moment_later(database: Database) -> None:
    store = DraftStore(database)

    async def work() -> None:
        book = Book(store)
        draft_id = book.begin(JobDraft())
        for place in range(200):
            book.change(draft_id, partial(renamed, name=str(place)))
            assert book.draft(draft_id).name == str(place)
            assert book.problem(draft_id) is None
            if place % 20 == 0:
                await asyncio.sleep(0)
        await book.settle(draft_id)
        assert book.problem(draft_id) == ""
        assert store.get(draft_id).content["name"] == "199"

    asyncio.run(work())


def test_another_server_finds_what_the_first_one_wrote(tmp_path: Path) -> None:
    async def first() -> str:
        book = Book(DraftStore(database))
        draft_id = book.begin(named("kept"))
        await book.close()
        return draft_id

    async def second(draft_id: str) -> None:
        book = Book(DraftStore(database))
        assert (await book.open(draft_id)) == (named("kept"), None)
        book.change(draft_id, lambda draft: draft.model_copy(update={"model": "m"}))
        await book.close()

    database = open_database(None, tmp_path)
    draft_id = asyncio.run(first())
    database.close()
    database = open_database(None, tmp_path)
    asyncio.run(second(draft_id))
    assert DraftStore(database).get(draft_id).content["model"] == "m"
    database.close()


def test_a_draft_that_became_a_job_says_which(tmp_path: Path) -> None:
    async def work() -> None:
        book = Book(DraftStore(database))
        draft_id = book.begin(named("done"))
        await book.finish(draft_id, "ftjob-1")
        assert await book.open(draft_id) == (named("done"), "ftjob-1")
        book.change(draft_id, lambda draft: named("too late"))
        await book.close()
        assert DraftStore(database).get(draft_id).content["name"] == "done"

    database = open_database(None, tmp_path)
    asyncio.run(work())
    database.close()


def test_a_draft_that_was_deleted_is_not_found(tmp_path: Path) -> None:
    async def work() -> None:
        book = Book(DraftStore(database))
        draft_id = book.begin(JobDraft())
        await book.delete(draft_id)
        with pytest.raises(NotFound):
            await book.open(draft_id)

    database = open_database(None, tmp_path)
    asyncio.run(work())
    database.close()


class Refusing(DraftStore):
    """Stores nothing while it is told not to."""

    def __init__(self, database: Any) -> None:
        super().__init__(database)
        self.refuses = True

    def create(self, content: Mapping[str, Any], draft_id: str | None = None) -> Draft:
        if self.refuses:
            raise TooLarge("too large to store")
        return super().create(content, draft_id)


def test_what_cannot_be_stored_says_so_until_it_can(tmp_path: Path) -> None:
    async def work() -> None:
        store = Refusing(database)
        book = Book(store)
        draft_id = book.begin(named("a"))
        await book.settle(draft_id)
        assert book.problem(draft_id) == "too large to store"
        assert book.draft(draft_id) == named("a")
        store.refuses = False
        book.change(draft_id, lambda draft: named("b"))
        await book.settle(draft_id)
        assert book.problem(draft_id) == ""
        assert store.get(draft_id).content["name"] == "b"

    database = open_database(None, tmp_path)
    asyncio.run(work())
    database.close()
