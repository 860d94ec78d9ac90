"""Data sets: named uploads."""

from __future__ import annotations

import time

import pytest

import stored_tasks
from strop.errors import Conflict, InvalidRequest, NotFound
from strop.store.datasets import DatasetStore
from strop.store.db import Database
from strop.store.tables import files


def upload(database: Database, file_id: str, rows: int | None = 3) -> str:
    """A file as the database knows it."""
    values = {"filename": "rows.jsonl", "purpose": "fine-tune", "bytes": 10, "sha256": "0", "status": "processed"}
    with database.write() as connection:
        connection.execute(files.insert().values(id=file_id, created_at=time.time(), rows=rows, **values))
    return file_id


def add_job(database: Database, status: str, training_file: str) -> None:
    stored_tasks.add_job(database, "ftjob-1", status, training_file=training_file)


@pytest.fixture
def store(database: Database) -> DatasetStore:
    upload(database, "file-a")
    return DatasetStore(database)


def test_a_data_set_is_a_file_with_a_name(store: DatasetStore) -> None:
    made = store.create("  sums ", "file-a", "Small sums")
    assert (made.name, made.file_id, made.description, made.rows, made.bytes) == ("sums", "file-a", "Small sums", 3, 10)
    assert store.get(made.id) == made


def test_several_data_sets_may_share_a_file_but_no_name(store: DatasetStore) -> None:
    store.create("one", "file-a")
    store.create("two", "file-a")
    with pytest.raises(Conflict, match="'one' is taken"):
        store.create("one", "file-a")
    assert [dataset.name for dataset in store.list()] == ["two", "one"]


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "x" * 101, "a\0b"])
def test_names_that_fit_no_line_are_refused(store: DatasetStore, name: str) -> None:
    with pytest.raises(InvalidRequest, match="needs a name"):
        store.create(name, "file-a")


def test_unknown_files_and_files_without_rows_are_refused(store: DatasetStore, database: Database) -> None:
    with pytest.raises(NotFound, match="no file 'file-x'"):
        store.create("x", "file-x")
    upload(database, "file-b", rows=None)
    with pytest.raises(InvalidRequest, match="has no rows"):
        store.create("x", "file-b")


def test_lists_go_on_after_an_id_and_are_searched_by_name(store: DatasetStore) -> None:
    made = [store.create(f"set {number}", "file-a") for number in range(5)]
    first = store.list(limit=2)
    assert [dataset.id for dataset in first] == [made[4].id, made[3].id, made[2].id]  # one more says there are more
    assert [dataset.id for dataset in store.list(after=made[3].id, limit=9)] == [made[2].id, made[1].id, made[0].id]
    assert [dataset.name for dataset in store.list(search="SET 3")] == ["set 3"]
    assert store.list(search="%") == []
    with pytest.raises(NotFound, match="'ds_x'"):
        store.list(after="ds_x")


def test_name_and_description_can_be_changed_one_by_one(store: DatasetStore) -> None:
    made = store.create("old", "file-a", "text")
    store.create("other", "file-a")
    assert store.update(made.id, name="new").description == "text"
    assert store.update(made.id, description="").name == "new"
    with pytest.raises(Conflict):
        store.update(made.id, name="other")
    with pytest.raises(NotFound):
        store.update("ds_x", name="y")
    assert store.get(made.id).name == "new"


@pytest.mark.parametrize(("status", "refused"), [("running", True), ("paused", True), ("failed", False)])
def test_a_data_set_of_an_unfinished_job_is_not_deleted(
    store: DatasetStore, database: Database, status: str, refused: bool
) -> None:
    made = store.create("rows", "file-a")
    add_job(database, status, "file-a")
    if refused:
        with pytest.raises(Conflict, match="ftjob-1"):
            store.delete(made.id)
    else:
        assert store.delete(made.id) == made
        with pytest.raises(NotFound):
            store.get(made.id)


def test_a_data_set_of_an_unfinished_evaluation_is_not_deleted(store: DatasetStore, database: Database) -> None:
    made = store.create("rows", "file-a")
    stored_tasks.add_evaluation(database, "eval_1", spec=f'{{"dataset": "{made.id}"}}')
    with pytest.raises(Conflict, match="eval_1"):
        store.delete(made.id)
