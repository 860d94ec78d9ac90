"""Data sets: named uploads for jobs and evaluations."""

from __future__ import annotations

import time
from dataclasses import dataclass

import sqlalchemy as sa

from strop.errors import Conflict, InvalidRequest, NotFound
from strop.store.db import Database
from strop.store.ids import new_id
from strop.store.names import checked_name, unique_name
from strop.store.tables import datasets, evaluations, files, jobs, tasks

MAX_DESCRIPTION = 2000
ENDED = ("succeeded", "failed", "cancelled")
"""Final statuses of jobs and evaluations."""

_SELECT = sa.select(
    datasets.c.id,
    datasets.c.created_at,
    datasets.c.name,
    datasets.c.description,
    datasets.c.file_id,
    files.c.filename,
    files.c.bytes,
    files.c.rows,
).join_from(datasets, files, datasets.c.file_id == files.c.id)


@dataclass(frozen=True)
class Dataset:
    """A data set. Times are seconds since 1970."""

    id: str
    created_at: float
    name: str
    description: str
    file_id: str
    filename: str
    """Original file name, for display only."""
    bytes: int
    rows: int | None
    """None if the file was not read as JSONL."""


class DatasetStore:
    """The data sets of a server."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def create(self, name: str, file_id: str, description: str = "") -> Dataset:
        """Create a data set from an uploaded file.

        Raises NotFound for an unknown file, InvalidRequest for a file without rows or an invalid name, Conflict for
        a name that is taken.
        """
        name, description = checked_name(name, "a data set"), _checked_description(description)
        dataset_id = new_id("ds_")
        with self._database.write() as connection:
            file = connection.execute(sa.select(files.c.rows).where(files.c.id == file_id)).one_or_none()
            if file is None:
                raise NotFound(f"no file {file_id!r}", param="file_id")
            if not file.rows:
                raise InvalidRequest(
                    f"{file_id} has no rows; upload a JSONL file with purpose fine-tune", param="file_id"
                )
            values = {"id": dataset_id, "created_at": time.time(), "name": name, "description": description}
            with unique_name(name):
                connection.execute(datasets.insert().values(**values, file_id=file_id))
            return _get(connection, dataset_id)

    def list(self, after: str | None = None, limit: int = 100, search: str = "") -> list[Dataset]:
        """Data sets, newest first, up to `limit` + 1; `search` is part of a name."""
        query = _SELECT.order_by(datasets.c.seq.desc()).limit(limit + 1)
        if search:
            query = query.where(sa.func.lower(datasets.c.name).contains(search.lower(), autoescape=True))
        with self._database.read() as connection:
            if after is not None:
                place = connection.scalar(sa.select(datasets.c.seq).where(datasets.c.id == after))
                if place is None:
                    raise NotFound(f"no data set {after!r}", param="after")
                query = query.where(datasets.c.seq < place)
            return [Dataset(*row) for row in connection.execute(query)]

    def get(self, dataset_id: str) -> Dataset:
        """One data set. Raises NotFound for an unknown id."""
        with self._database.read() as connection:
            return _get(connection, dataset_id)

    def update(self, dataset_id: str, name: str | None = None, description: str | None = None) -> Dataset:
        """Change the name or description, if given. Raises the same errors as `create`."""
        values = {}
        if name is not None:
            values["name"] = checked_name(name, "a data set")
        if description is not None:
            values["description"] = _checked_description(description)
        with self._database.write() as connection:
            found = _get(connection, dataset_id)
            if values:
                with unique_name(values.get("name", found.name)):
                    connection.execute(datasets.update().where(datasets.c.id == dataset_id).values(**values))
            return _get(connection, dataset_id)

    def delete(self, dataset_id: str) -> Dataset:
        """Delete a data set but not its file. Raises Conflict while a job or evaluation uses it."""
        with self._database.write() as connection:
            found = _get(connection, dataset_id)
            user = _user(connection, found)
            if user is not None:
                raise Conflict(f"{dataset_id} is used by {user}; cancel it, or wait until it has finished")
            connection.execute(datasets.delete().where(datasets.c.id == dataset_id))
            return found


def _get(connection: sa.Connection, dataset_id: str) -> Dataset:
    row = connection.execute(_SELECT.where(datasets.c.id == dataset_id)).one_or_none()
    if row is None:
        raise NotFound(f"no data set {dataset_id!r}", param="dataset_id")
    return Dataset(*row)


def _user(connection: sa.Connection, dataset: Dataset) -> str | None:
    """Id of an unfinished job or evaluation that uses the data set."""
    of_job = sa.or_(jobs.c.training_file == dataset.file_id, jobs.c.validation_file == dataset.file_id)
    of_evaluation = sa.or_(evaluations.c.spec.contains(dataset.id), evaluations.c.spec.contains(dataset.file_id))
    for table, uses in ((jobs, of_job), (evaluations, of_evaluation)):
        found = connection.scalar(
            sa.select(tasks.c.id).join_from(tasks, table).where(uses, tasks.c.status.not_in(ENDED)).limit(1)
        )
        if found is not None:
            return str(found)
    return None


def _checked_description(description: str) -> str:
    if len(description) > MAX_DESCRIPTION or "\0" in description:
        raise InvalidRequest(
            f"a description may have at most {MAX_DESCRIPTION} characters and no NUL", param="description"
        )
    return description
