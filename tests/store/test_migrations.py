"""Migrations make the very tables that the code names."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext

import stored_tasks
import strop.store.db
from databases import PostgresServer
from strop.jobs.evaluations import EvaluationQueue
from strop.jobs.job import JobQueue
from strop.jobs.task import NewEvent
from strop.store.datafolder import DataFolder
from strop.store.db import Database, open_database
from strop.store.queries.evaluations import evaluation_rows_page
from strop.store.tables import events, metadata, tasks


def differences(database: Database) -> list[object]:
    with database.write() as connection:
        return list(compare_metadata(MigrationContext.configure(connection), metadata))


def indexes(database: Database) -> set[tuple[str, str, tuple[str | None, ...]]]:
    with database.write() as connection:
        inspector = sa.inspect(connection)
        return {
            (table, str(index["name"]), tuple(index["column_names"]))
            for table in metadata.tables
            for index in inspector.get_indexes(table)
            if not index["unique"]
        }


def test_migrations_and_tables_agree(database: Database) -> None:
    assert differences(database) == []
    assert indexes(database) == {
        (table.name, str(index.name), tuple(column.name for column in index.columns))
        for table in metadata.tables.values()
        for index in table.indexes
    }


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_an_empty_database_is_migrated_when_it_is_opened(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = None
    if kind == "postgresql":
        server: PostgresServer = request.getfixturevalue("postgres")
        url = server.create(migrated=False)
    for _ in range(2):  # the second time there is nothing to do
        database = open_database(url, tmp_path)
        assert differences(database) == []
        database.close()


OLD = """
INSERT INTO evaluations (id, created_at, name, status, model, spec, folder, rows_done, restarts, pid)
VALUES ('eval_1', 1.0, 'one', 'succeeded', 'm', '{}', 'evaluations/eval_1', 2, 0, NULL),
       ('eval_2', 2.0, 'two', 'cancelled', 'm', '{}', 'evaluations/eval_2', 1, 1, 77);
INSERT INTO evaluation_rows (evaluation, "row", line, prompt, reward, passed, samples, components, rollouts)
VALUES (2, 'row-1', 1, '[]', 0.5, 1, 2, '{}', '{}');
INSERT INTO jobs (id, created_at, name, status, wanted, reason, model, config, request, training_file,
                  fine_tuned_model, run_id, folder, queued_seq, restarts, token, lease_owner, pid)
VALUES ('ftjob-11111111', 1.5, 'a', 'running', 'pause', 'why', 'm', '{}', '{"suffix": "s"}', 'file-1',
        NULL, 'run_1', 'runs/a', 3, 2, 5, 'one', 99),
       ('ftjob-22222222', 2.5, 'b', 'succeeded', NULL, NULL, 'm', '{}', '{}', NULL, 'ft:m', NULL, 'runs/b', 1, 0, 2,
        NULL, NULL),
       ('ftjob-33333333', 3.5, 'c', 'validating_files', NULL, NULL, 'm', '{}', '{}', NULL, NULL, NULL, 'runs/c', 4,
        0, 0, NULL, NULL);
INSERT INTO events (created_at, job, level, type, message, once)
VALUES (4.0, 1, 'info', 'message', 'first', 'step:1'), (5.0, 2, 'info', 'message', 'other', NULL),
       (6.0, 1, 'warn', 'message', 'second', NULL);
"""


@pytest.fixture
def old(database_url: str, tmp_path: Path) -> Database:
    """A database of the version before tasks, with jobs and evaluations in it, as this version opens it."""
    engine = sa.create_engine(database_url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.begin() as connection:
        present = sa.MetaData()
        present.reflect(connection)
        present.drop_all(connection)
        config = Config()
        config.set_main_option("script_location", str(Path(strop.store.db.__file__).parent / "migrations"))
        config.attributes["connection"] = connection
        command.upgrade(config, "0003")
        for statement in OLD.strip().removesuffix(";").split(";\n"):
            connection.exec_driver_sql(statement)
    engine.dispose()
    return open_database(database_url, tmp_path)


def test_jobs_and_evaluations_of_an_older_version_become_tasks(old: Database, tmp_path: Path) -> None:
    jobs, evaluations = JobQueue(old), EvaluationQueue(old, DataFolder.open(tmp_path / "data"))
    running, done, checked = (jobs.get(f"ftjob-{digit * 8}") for digit in "123")
    assert (running.status, running.requested, running.reason, running.restarts) == ("running", "pause", "why", 2)
    assert (running.token, running.lease_owner, running.pid, running.run_id) == (5, "one", 99, "run_1")
    assert (running.suffix, running.training_file, running.folder) == ("s", "file-1", "runs/a")
    assert jobs.by_model("ft:m") == done
    assert [job.id for job in jobs.list()] == [checked.id, done.id, running.id]
    assert [event.message for event in jobs.events(running.id)] == ["first", "second"]
    first, second = (evaluations.get(f"eval_{number}") for number in (1, 2))
    assert (first.status, first.rows_done, first.name) == ("succeeded", 2, "one")
    assert (second.status, second.requested, second.pid) == ("cancelled", "cancel", 77)
    with old.read() as connection:
        assert [row["row"] for row in evaluation_rows_page(connection, "eval_2")] == ["row-1"]
        checks = connection.execute(sa.select(tasks.c.parent, tasks.c.status).where(tasks.c.kind == "validation"))
        assert checks.all() == [(checked.seq, "queued")]
    old.close()


def test_what_is_added_after_the_migration_gets_a_number_of_its_own(old: Database) -> None:
    with old.read() as connection:
        newest = [connection.scalar(sa.select(sa.func.max(table.c.seq))) or 0 for table in (tasks, events)]
    added = stored_tasks.add_job(old, "ftjob-44444444")
    JobQueue(old).event("ftjob-44444444", NewEvent("new"))
    assert added > newest[0]
    assert JobQueue(old).events("ftjob-44444444")[0].seq > newest[1]
    old.close()
