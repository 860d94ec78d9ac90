from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from strop.errors import NotFound, TooLarge
from strop.store.db import Database, open_database
from strop.store.drafts import KEPT_S, MAX_BYTES, DraftStore
from strop.store.tables import drafts

CONTENT = {"model": "smollm2-135m", "rewards": [{"name": "right", "source": "a\u0000\ud83d ä\n"}], "seed": 17}


def ids(store: DraftStore) -> list[str]:
    return [draft.id for draft in store.list()]


def test_a_draft_holds_what_was_put_into_it(database: Database) -> None:
    store = DraftStore(database)
    made = store.create(CONTENT)
    assert store.get(made.id) == made
    assert made.content == CONTENT
    assert made.id.startswith("draft_")


def test_saving_replaces_the_content_and_brings_a_draft_to_the_front(database: Database) -> None:
    store = DraftStore(database)
    first, second = store.create({}), store.create({})
    assert ids(store) == [second.id, first.id]
    store.save(first.id, CONTENT)
    assert ids(store) == [first.id, second.id]
    saved = store.get(first.id)
    assert saved.content == CONTENT
    assert saved.created_at == first.created_at < saved.updated_at


def test_a_draft_outlives_the_server(database_url: str, tmp_path: Path) -> None:
    database = open_database(database_url, tmp_path)
    made = DraftStore(database).create(CONTENT)
    database.close()
    database = open_database(database_url, tmp_path)
    assert DraftStore(database).get(made.id) == made
    database.close()


def test_a_draft_that_became_a_job_leaves_the_list_and_keeps_its_id(database: Database) -> None:
    store = DraftStore(database)
    made = store.create(CONTENT)
    store.finish(made.id, "ftjob-1")
    assert ids(store) == []
    assert store.get(made.id).job_id == "ftjob-1"


def test_what_is_unknown_is_not_found(database: Database) -> None:
    store = DraftStore(database)
    made = store.create({})
    store.delete(made.id)
    for use in (store.get, store.delete, lambda name: store.save(name, {}), lambda name: store.finish(name, "ftjob-1")):
        with pytest.raises(NotFound, match=made.id):
            use(made.id)


def test_a_draft_may_not_grow_without_bounds(database: Database) -> None:
    store = DraftStore(database)
    made = store.create(CONTENT)
    with pytest.raises(TooLarge):
        store.save(made.id, {"text": "x" * MAX_BYTES})
    assert store.get(made.id).content == CONTENT


def test_drafts_that_nobody_touches_are_dropped_in_the_end(database: Database) -> None:
    store = DraftStore(database)
    old, young = store.create({}), store.create({})
    with database.write() as connection:
        change = drafts.update().where(drafts.c.id == old.id)
        connection.execute(change.values(updated_at=sa.cast(old.updated_at - KEPT_S - 1, sa.Float(53))))
    newest = store.create({})
    assert ids(store) == [newest.id, young.id]
