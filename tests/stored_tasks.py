"""Helpers: tasks put into the database by hand, and brought into any state."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from strop.jobs.task import last_place
from strop.store.db import Database
from strop.store.tables import evaluations, jobs, tasks

_OWN = {"training": jobs, "evaluation": evaluations}


def add_job(database: Database, task_id: str, status: str = "queued", **own: Any) -> int:
    """A job without a run; its number."""
    return _add(database, "training", task_id, status, {"name": "j", "config": "{}", "request": "{}", **own})


def add_evaluation(database: Database, task_id: str, status: str = "queued", **own: Any) -> int:
    """An evaluation without a folder; its number."""
    return _add(database, "evaluation", task_id, status, {"name": "e", "spec": "{}", **own})


def become(database: Database, task_id: str, **values: Any) -> None:
    """Change columns of a task, whether they are those of every task or of its kind only."""
    common = {name: value for name, value in values.items() if name in tasks.c}
    own = {name: value for name, value in values.items() if name not in tasks.c}
    with database.write() as connection:
        seq, kind = connection.execute(sa.select(tasks.c.seq, tasks.c.kind).where(tasks.c.id == task_id)).one()
        if common:
            connection.execute(tasks.update().where(tasks.c.seq == seq).values(**common))
        if own:
            connection.execute(_OWN[kind].update().where(_OWN[kind].c.task == seq).values(**own))


def forget_tasks(database: Database) -> None:
    """Remove every task."""
    with database.write() as connection:
        connection.execute(tasks.delete())


def _add(database: Database, kind: str, task_id: str, status: str, own: dict[str, Any]) -> int:
    common = {"id": task_id, "kind": kind, "created_at": 0.0, "status": status, "folder": task_id}
    with database.write() as connection:
        statement = tasks.insert().values(**common, place=last_place()).returning(tasks.c.seq)
        seq = int(connection.execute(statement).scalar_one())
        connection.execute(_OWN[kind].insert().values(task=seq, model="m", **own))
    return seq
