"""Uploaded files: immutable content under `files/<id>` in the data folder, and a database row for each.

A file is stored completely or not at all: it is written to a temporary name, checked, renamed, and then entered in
the database. Files without a row after a crash are deleted at the next start.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import BinaryIO, Literal

import sqlalchemy as sa

from strop.errors import Conflict, InvalidRequest, NotFound, TooLarge
from strop.store.datafolder import DataFolder
from strop.store.datasets import ENDED
from strop.store.db import Database
from strop.store.files import sync_folder
from strop.store.ids import new_id
from strop.store.tables import datasets, evaluations, files, jobs, tasks

ROWS = "fine-tune"
"""Purpose of files whose rows are checked."""
MAX_FILES = 10_000
MAX_FILENAME = 255
_STAGED = ".upload-"

Check = Callable[[Path, str], int]
"""Counts the rows of a file; the name is used in errors. Raises DataError that lists faults by line."""


@dataclass(frozen=True)
class File:
    """An uploaded file. Times are seconds since 1970."""

    id: str
    created_at: float
    filename: str
    """File name from the client, for display only."""
    purpose: str
    bytes: int
    sha256: str
    rows: int | None
    """Number of rows; None if the rows were not checked."""
    status: str
    status_details: str | None
    expires_at: float | None


_SELECT = sa.select(*(files.c[column.name] for column in fields(File)))


class FileStore:
    """The files of a server."""

    def __init__(self, database: Database, folder: DataFolder, check: Check, max_bytes: int | None = None) -> None:
        """`check` validates files with purpose `fine-tune`."""
        self._database = database
        self._folder = folder
        self._check = check
        self._max_bytes = max_bytes

    def add(self, filename: str, purpose: str, chunks: Iterable[bytes], expires_after: int | None = None) -> File:
        """Store a file durably. `expires_after` is in seconds.

        Raises DataError that lists the faults of its rows, InvalidRequest for an invalid name, TooLarge for a file
        or a number of files above the limit. On failure nothing is stored.
        """
        filename = _checked_name(filename)
        self.purge()
        with self._database.read() as connection:
            if (connection.scalar(sa.select(sa.func.count()).select_from(files)) or 0) >= MAX_FILES:
                raise TooLarge(f"{MAX_FILES:,} files are stored, which is the limit; delete some files first")
        file_id = new_id("file-")
        staged, path = self._folder.files / f"{_STAGED}{file_id}", self._folder.files / file_id
        try:
            size, digest = self._write(staged, chunks)
            rows = self._check(staged, filename) if purpose == ROWS else None
            os.replace(staged, path)
            sync_folder(path.parent)
            now = time.time()
            expires_at = None if expires_after is None else now + expires_after
            file = File(file_id, now, filename, purpose, size, digest, rows, "processed", None, expires_at)
            with self._database.write() as connection:
                connection.execute(files.insert().values(**vars(file)))
        finally:
            # Not the renamed one: should the database fail, it may still have taken the row.
            staged.unlink(missing_ok=True)
        return file

    def get(self, file_id: str) -> File:
        """A file by its id. Raises NotFound if it is unknown, deleted or expired."""
        with self._database.read() as connection:
            return _get(connection, file_id)

    def list(
        self,
        *,
        purpose: str | None = None,
        order: Literal["asc", "desc"] = "desc",
        after: str | None = None,
        limit: int = MAX_FILES,
    ) -> list[File]:
        """Files by upload time, up to `limit` + 1. Raises NotFound for an unknown `after`."""
        newest_first = order == "desc"
        query = _SELECT.where(_alive()).order_by(files.c.seq.desc() if newest_first else files.c.seq)
        if purpose is not None:
            query = query.where(files.c.purpose == purpose)
        with self._database.read() as connection:
            if after is not None:
                place = connection.scalar(sa.select(files.c.seq).where(files.c.id == after))
                if place is None:
                    raise NotFound(f"no file {after!r}", param="after")
                query = query.where(files.c.seq < place if newest_first else files.c.seq > place)
            return [File(*row) for row in connection.execute(query.limit(limit + 1))]

    def open(self, file_id: str) -> tuple[File, BinaryIO]:
        """A file and its open content, which stays readable if the file is deleted meanwhile."""
        file = self.get(file_id)
        try:
            return file, open(self._folder.files / file_id, "rb")
        except FileNotFoundError:
            raise _unknown(file_id) from None

    def path(self, file_id: str) -> Path:
        """Path of the content. Raises NotFound for an unknown file."""
        self.get(file_id)
        return self._folder.files / file_id

    def delete(self, file_id: str) -> None:
        """Delete a file and its content. Downloads in progress complete.

        Raises Conflict while a data set, an unfinished job or an unfinished evaluation uses it.
        """
        with self._database.write() as connection:
            _get(connection, file_id)
            user = _user(connection, file_id)
            if user is not None:
                raise Conflict(f"{file_id} is used by {user}; delete or cancel it first")
            connection.execute(files.delete().where(files.c.id == file_id))
        (self._folder.files / file_id).unlink(missing_ok=True)

    def purge(self) -> None:
        """Delete expired files that are no longer used."""
        with self._database.read() as connection:
            expired = list(connection.scalars(sa.select(files.c.id).where(sa.not_(_alive()))))
        for file_id in expired:
            with self._database.write() as connection:
                if _user(connection, file_id) is not None:
                    continue
                connection.execute(files.delete().where(files.c.id == file_id))
            (self._folder.files / file_id).unlink(missing_ok=True)

    def sweep(self) -> None:
        """Delete content without a row, left by a crash. Call only at server start."""
        with self._database.read() as connection:
            known = set(connection.scalars(sa.select(files.c.id)))
        for path in self._folder.files.iterdir():
            if path.name not in known and path.name.startswith((_STAGED, "file-")):
                path.unlink()
        self.purge()

    def _write(self, path: Path, chunks: Iterable[bytes]) -> tuple[int, str]:
        """Write a file durably. Returns its size and SHA-256."""
        size, digest = 0, hashlib.sha256()
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            for chunk in chunks:
                size += len(chunk)
                if self._max_bytes is not None and size > self._max_bytes:
                    raise TooLarge(f"the file exceeds the limit of {self._max_bytes // 2**20} MiB")
                digest.update(chunk)
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        return size, digest.hexdigest()


def _alive() -> sa.ColumnElement[bool]:
    return sa.or_(files.c.expires_at.is_(None), files.c.expires_at > time.time())


def _get(connection: sa.Connection, file_id: str) -> File:
    row = connection.execute(_SELECT.where(files.c.id == file_id, _alive())).one_or_none()
    if row is None:
        raise _unknown(file_id)
    return File(*row)


def _unknown(file_id: str) -> NotFound:
    return NotFound(f"no file {file_id!r}", param="file_id")


def _user(connection: sa.Connection, file_id: str) -> str | None:
    """Id of a data set, unfinished job or unfinished evaluation that uses the file."""
    named = connection.scalar(sa.select(datasets.c.id).where(datasets.c.file_id == file_id).limit(1))
    if named is not None:
        return f"data set {named}"
    of_job = sa.or_(jobs.c.training_file == file_id, jobs.c.validation_file == file_id)
    for table, uses in ((jobs, of_job), (evaluations, evaluations.c.spec.contains(file_id))):
        found = connection.scalar(
            sa.select(tasks.c.id).join_from(tasks, table).where(uses, tasks.c.status.not_in(ENDED)).limit(1)
        )
        if found is not None:
            return str(found)
    return None


def _checked_name(filename: str) -> str:
    """The last component of a file name, for display: it is never used as a path."""
    name = filename.replace("\\", "/").rpartition("/")[2].strip()
    if not 1 <= len(name) <= MAX_FILENAME or not name.isprintable():
        raise InvalidRequest(f"a file needs a name of 1 to {MAX_FILENAME} printable characters", param="file")
    return name
