"""Uploaded files: whole or not at all, checked, kept while something needs them."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from strop.config import parse_config
from strop.data.rows import count_rows
from strop.errors import Conflict, DataError, InvalidRequest, NotFound, TooLarge
from strop.jobs.job import Job, JobQueue, NewJob
from strop.store.datafolder import DataFolder
from strop.store.datasets import DatasetStore
from strop.store.db import Database, open_database
from strop.store.tables import files
from strop.store.uploads import MAX_FILES, FileStore

ROWS = b'{"prompt": "one"}\n{"prompt": "two"}\n'

KILLED = """
import os, signal, sys
from pathlib import Path
from strop.store.datafolder import DataFolder
from strop.store.db import open_database
from strop.store.uploads import MAX_FILES, FileStore

def chunks():
    yield b"half"
    if sys.argv[2] == "while writing":
        os.kill(os.getpid(), signal.SIGKILL)

def kill(path, name):  # the last thing before the file gets its name
    os.kill(os.getpid(), signal.SIGKILL)

folder = DataFolder.open(Path(sys.argv[1]))
FileStore(open_database(None, folder.path), folder, kill).add("a.jsonl", "fine-tune", chunks())
"""


@pytest.fixture
def folder(tmp_path: Path) -> DataFolder:
    return DataFolder.open(tmp_path / "data")


@pytest.fixture
def store(database: Database, folder: DataFolder) -> FileStore:
    return FileStore(database, folder, count_rows, max_bytes=1024)


def left(folder: DataFolder) -> list[str]:
    """Names of what lies in the folder for files."""
    return sorted(path.name for path in folder.files.iterdir())


def train_on(queue: JobQueue, file_id: str) -> Job:
    """A job that waits for its turn."""
    reward = {"name": "score", "source": "reward.py:score"}
    config = parse_config({"name": "case", "model": "tiny", "data": {"train": f"files/{file_id}"}, "rewards": [reward]})
    return queue.create(NewJob(name="case", model="tiny", config=config, request={}, training_file=file_id))


def expire(database: Database) -> None:
    with database.write() as connection:
        connection.execute(files.update().values(expires_at=1.0))


def test_a_file_is_stored_as_it_came(store: FileStore, folder: DataFolder) -> None:
    file = store.add("rows.jsonl", "fine-tune", iter([ROWS[:10], ROWS[10:]]))
    assert store.path(file.id).read_bytes() == ROWS
    assert (file.filename, file.purpose, file.bytes, file.rows) == ("rows.jsonl", "fine-tune", len(ROWS), 2)
    assert file.sha256 == hashlib.sha256(ROWS).hexdigest()
    assert store.get(file.id) == file
    assert left(folder) == [file.id]
    assert store.path(file.id).stat().st_mode & 0o777 == 0o600


def test_rows_are_checked_and_all_faults_named_by_line(store: FileStore, folder: DataFolder) -> None:
    with pytest.raises(DataError) as caught:
        store.add("rows.jsonl", "fine-tune", [b'{"prompt": "one"}\n{"prompt": 2}\n[]\n'])
    assert "rows.jsonl:2: " in caught.value.message
    assert "rows.jsonl:3: " in caught.value.message
    assert left(folder) == []
    assert store.list() == []


@pytest.mark.parametrize("purpose", ["user_data", "evals", "batch"])
def test_files_for_other_purposes_are_not_read(store: FileStore, purpose: str) -> None:
    file = store.add("model.pkl", purpose, [b"\x80\x04cos\nsystem\n."])
    assert file.rows is None
    assert store.path(file.id).read_bytes() == b"\x80\x04cos\nsystem\n."


def test_a_file_over_the_limit_leaves_nothing(store: FileStore, folder: DataFolder) -> None:
    with pytest.raises(TooLarge, match="the file exceeds the limit of 0 MiB"):
        store.add("big.bin", "user_data", (b"x" * 100 for _ in range(11)))
    assert left(folder) == []


def test_more_files_than_the_limit_are_refused(store: FileStore, database: Database) -> None:
    row = {"created_at": 0.0, "filename": "a", "purpose": "batch", "bytes": 0, "sha256": "", "status": "processed"}
    with database.write(durable=False) as connection:
        connection.execute(files.insert(), [{**row, "id": f"file-{number}"} for number in range(MAX_FILES)])
    with pytest.raises(TooLarge, match="10,000 files are stored, which is the limit; delete some files first"):
        store.add("one.txt", "batch", [b"x"])
    store.delete("file-0")
    store.add("one.txt", "batch", [b"x"])


def test_an_upload_that_breaks_off_leaves_nothing(store: FileStore, folder: DataFolder) -> None:
    def broken() -> Iterator[bytes]:
        yield ROWS
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        store.add("rows.jsonl", "fine-tune", broken())
    assert left(folder) == []
    assert store.list() == []


@pytest.mark.parametrize(
    ("sent", "kept"),
    [("../../etc/passwd", "passwd"), ("C:\\temp\\rows.jsonl", "rows.jsonl"), ("/a/b", "b"), (" ü .jsonl ", "ü .jsonl")],
)
def test_of_a_name_only_the_last_part_is_kept(store: FileStore, folder: DataFolder, sent: str, kept: str) -> None:
    file = store.add(sent, "user_data", [b""])
    assert file.filename == kept
    assert left(folder) == [file.id]


@pytest.mark.parametrize("name", ["", "..\\", "a\nb", "a\0b", "\u202egnp", "x" * 256])
def test_a_name_that_cannot_be_shown_is_refused(store: FileStore, folder: DataFolder, name: str) -> None:
    with pytest.raises(InvalidRequest, match="a file needs a name"):
        store.add(name, "user_data", [b""])
    assert left(folder) == []


def test_files_are_listed_by_cursor_in_both_orders(store: FileStore) -> None:
    ids = [store.add(f"{number}.jsonl", "fine-tune", [ROWS]).id for number in range(3)]
    other = store.add("notes.txt", "user_data", [b"x"]).id
    assert [file.id for file in store.list()] == [other, *reversed(ids)]
    assert [file.id for file in store.list(purpose="fine-tune", order="asc")] == ids
    assert [file.id for file in store.list(order="asc", after=ids[0], limit=1)] == [ids[1], ids[2]]
    assert [file.id for file in store.list(after=ids[1])] == [ids[0]]
    with pytest.raises(NotFound, match="no file 'file-0'"):
        store.list(after="file-0")


def test_a_deleted_file_is_gone(store: FileStore, folder: DataFolder) -> None:
    file = store.add("rows.jsonl", "fine-tune", [ROWS])
    _, download = store.open(file.id)
    with download:
        store.delete(file.id)
        assert download.read() == ROWS
    assert left(folder) == []
    for missing in (store.get, store.open, store.path, store.delete):
        with pytest.raises(NotFound, match=f"no file '{file.id}'"):
            missing(file.id)


def test_a_file_that_a_job_needs_is_kept_until_its_end(store: FileStore, database: Database) -> None:
    file = store.add("rows.jsonl", "fine-tune", [ROWS])
    queue = JobQueue(database)
    job = train_on(queue, file.id)
    with pytest.raises(Conflict, match=f"{file.id} is used by {job.id}"):
        store.delete(file.id)
    queue.request(job.id, "cancel")
    store.delete(file.id)


def test_a_file_that_a_data_set_names_is_kept(store: FileStore, database: Database) -> None:
    file = store.add("rows.jsonl", "fine-tune", [ROWS])
    datasets = DatasetStore(database)
    named = datasets.create("numbers", file.id)
    with pytest.raises(Conflict, match=f"{file.id} is used by data set {named.id}"):
        store.delete(file.id)
    datasets.delete(named.id)
    store.delete(file.id)


def test_an_expired_file_goes_once_nothing_needs_it(store: FileStore, folder: DataFolder, database: Database) -> None:
    file = store.add("rows.jsonl", "fine-tune", [ROWS], expires_after=3600)
    assert file.expires_at == pytest.approx(file.created_at + 3600)
    queue = JobQueue(database)
    job = train_on(queue, file.id)
    expire(database)
    store.purge()
    assert store.list() == []
    with pytest.raises(NotFound):
        store.get(file.id)
    assert left(folder) == [file.id]  # the job still reads it
    queue.request(job.id, "cancel")
    store.purge()
    assert left(folder) == []


@pytest.mark.parametrize("moment", ["while writing", "before the rename"])
def test_what_a_kill_leaves_is_swept(tmp_path: Path, moment: str) -> None:
    folder = DataFolder.open(tmp_path)
    killed = subprocess.run([sys.executable, "-c", KILLED, tmp_path, moment], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert left(folder) != []
    database = open_database(None, tmp_path)
    store = FileStore(database, folder, count_rows)
    kept = store.add("rows.jsonl", "fine-tune", [ROWS])
    (folder.files / "file-0123").write_bytes(b"renamed, and then killed before the database had the row")
    store.sweep()
    assert left(folder) == [kept.id]
    database.close()


def test_a_full_disk_is_said_and_leaves_nothing(store: FileStore, folder: DataFolder, database: Database) -> None:
    def full() -> Iterator[bytes]:
        yield ROWS
        raise OSError(28, os.strerror(28))

    with pytest.raises(OSError, match="No space left"):
        store.add("rows.jsonl", "fine-tune", full())
    assert left(folder) == []
    with database.read() as connection:
        assert connection.scalar(sa.select(sa.func.count()).select_from(files)) == 0
