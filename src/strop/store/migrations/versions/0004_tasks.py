"""One table of tasks of every kind; jobs and evaluations keep what is their own.

Evaluations keep their number, so that their rows stay as they are; jobs get numbers behind those.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_SEQ = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_OWN_OF_JOBS = "name, model, config, request, training_file, validation_file, fine_tuned_model, forked_from, run_id"
_OWN_OF_EVALUATIONS = "name, model, spec, rows_done, rows_total, metrics"
_EVENT = "created_at, level, type, message, data, once"


def upgrade() -> None:
    _create_tasks()
    offset = _move_tasks()
    _move_events(offset)
    _move_jobs(offset)
    _move_evaluations()
    # Files of these jobs were being checked: a task of its own does that now.
    op.execute(
        "INSERT INTO tasks (id, created_at, kind, status, parent, folder, place, restarts, token) "
        "SELECT 'check-' || substr(id, 7), created_at, 'validation', 'queued', seq, "
        "'tasks/check-' || substr(id, 7), place, 0, 0 "
        "FROM tasks WHERE kind = 'training' AND status = 'validating_files'"
    )


def downgrade() -> None:
    raise NotImplementedError("older versions of strop have no tasks; restore a copy of the database instead")


def _create_tasks() -> None:
    op.create_table(
        "tasks",
        sa.Column("seq", _SEQ, autoincrement=True, nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("requested", sa.Text(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("error_code", sa.Text(), nullable=True),
        sa.Column("error_param", sa.Text(), nullable=True),
        sa.Column("parent", _SEQ, nullable=True),
        sa.Column("folder", sa.Text(), nullable=False),
        sa.Column("place", sa.BigInteger(), nullable=False),
        sa.Column("started_at", sa.Float(precision=53), nullable=True),
        sa.Column("finished_at", sa.Float(precision=53), nullable=True),
        sa.Column("restarts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("token", sa.Integer(), server_default="0", nullable=False),
        sa.Column("lease_owner", sa.Text(), nullable=True),
        sa.Column("lease_expires_at", sa.Float(precision=53), nullable=True),
        sa.Column("pid", sa.Integer(), nullable=True),
        sa.Column("pid_started_at", sa.Float(precision=53), nullable=True),
        sa.ForeignKeyConstraint(["parent"], ["tasks.seq"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("seq"),
        sa.UniqueConstraint("id", name=op.f("uq_tasks_id")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_tasks_status"), "tasks", ["status"])
    op.create_index(op.f("ix_tasks_parent"), "tasks", ["parent"])


def _move_tasks() -> int:
    """Make the task of each evaluation and of each job; what was added to the numbers of jobs."""
    connection = op.get_bind()
    # An evaluation that was cancelled while its process ran is settled by the next server.
    op.execute(
        "INSERT INTO tasks (seq, id, created_at, kind, status, requested, reason, folder, place, started_at, "
        "finished_at, restarts, token, pid, pid_started_at) "
        "SELECT seq, id, created_at, 'evaluation', "
        "CASE WHEN status = 'cancelled' AND pid IS NOT NULL THEN 'running' ELSE status END, "
        "CASE WHEN status = 'cancelled' AND pid IS NOT NULL THEN 'cancel' END, "
        "reason, folder, seq, started_at, finished_at, restarts, 0, pid, pid_started_at FROM evaluations"
    )
    offset = int(connection.scalar(sa.text("SELECT coalesce(max(seq), 0) FROM evaluations")) or 0)
    op.execute(
        f"INSERT INTO tasks (seq, id, created_at, kind, status, requested, reason, error_code, error_param, folder, "
        "place, started_at, finished_at, restarts, token, lease_owner, lease_expires_at, pid, pid_started_at) "
        f"SELECT seq + {offset}, id, created_at, 'training', status, wanted, reason, error_code, error_param, folder, "
        f"queued_seq + {offset}, started_at, finished_at, restarts, token, lease_owner, lease_expires_at, pid, "
        "pid_started_at FROM jobs"
    )
    _set_counter("tasks")
    return offset


def _move_events(offset: int) -> None:
    op.create_table(
        "task_events",
        sa.Column("seq", _SEQ, autoincrement=True, nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.Column("task", _SEQ, nullable=False),
        sa.Column("level", sa.Text(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("data", sa.Text(), nullable=True),
        sa.Column("once", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["task"], ["tasks.seq"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("seq"),
        sa.UniqueConstraint("task", "once", name=op.f("uq_events_task_once")),
        sqlite_autoincrement=True,
    )
    op.execute(f"INSERT INTO task_events (seq, task, {_EVENT}) SELECT seq, job + {offset}, {_EVENT} FROM events")
    op.drop_table("events")
    op.rename_table("task_events", "events")
    op.create_index(op.f("ix_events_task_seq"), "events", ["task", "seq"])
    _set_counter("events", "task_events")


def _move_jobs(offset: int) -> None:
    op.create_table(
        "own_of_jobs",
        sa.Column("task", _SEQ, autoincrement=False, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("config", sa.Text(), nullable=False),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("training_file", sa.Text(), nullable=True),
        sa.Column("validation_file", sa.Text(), nullable=True),
        sa.Column("fine_tuned_model", sa.Text(), nullable=True),
        sa.Column("forked_from", sa.Text(), nullable=True),
        sa.Column("run_id", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["task"], ["tasks.seq"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("task"),
    )
    op.execute(f"INSERT INTO own_of_jobs (task, {_OWN_OF_JOBS}) SELECT seq + {offset}, {_OWN_OF_JOBS} FROM jobs")
    op.drop_table("jobs")
    op.rename_table("own_of_jobs", "jobs")
    with op.batch_alter_table("jobs") as jobs:
        jobs.create_unique_constraint(op.f("uq_jobs_fine_tuned_model"), ["fine_tuned_model"])


def _move_evaluations() -> None:
    op.create_table(
        "own_of_evaluations",
        sa.Column("task", _SEQ, autoincrement=False, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("rows_done", sa.Integer(), server_default="0", nullable=False),
        sa.Column("rows_total", sa.Integer(), nullable=True),
        sa.Column("metrics", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["task"], ["tasks.seq"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("task"),
    )
    columns = _OWN_OF_EVALUATIONS
    op.execute(f"INSERT INTO own_of_evaluations (task, {columns}) SELECT seq, {columns} FROM evaluations")
    op.create_table(
        "rows_of_evaluations",
        sa.Column("evaluation", _SEQ, nullable=False),
        sa.Column("row", sa.Text(), nullable=False),
        sa.Column("line", sa.Integer(), nullable=False),
        sa.Column("prompt", sa.Text(), nullable=False),
        sa.Column("reward", sa.Float(precision=53), nullable=True),
        sa.Column("passed", sa.Integer(), nullable=False),
        sa.Column("samples", sa.Integer(), nullable=False),
        sa.Column("components", sa.Text(), nullable=False),
        sa.Column("failure", sa.Text(), nullable=True),
        sa.Column("rollouts", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["evaluation"], ["own_of_evaluations.task"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("evaluation", "row"),
    )
    rows = 'evaluation, "row", line, prompt, reward, passed, samples, components, failure, rollouts'
    op.execute(f"INSERT INTO rows_of_evaluations ({rows}) SELECT {rows} FROM evaluation_rows")
    op.drop_table("evaluation_rows")
    op.drop_table("evaluations")
    op.rename_table("own_of_evaluations", "evaluations")
    op.rename_table("rows_of_evaluations", "evaluation_rows")


def _set_counter(table: str, made_as: str | None = None) -> None:
    """Let the next row have a number that none had: PostgreSQL does not see numbers that were given."""
    connection = op.get_bind()
    if connection.dialect.name == "postgresql":
        sequence = f"{made_as or table}_seq_seq"
        op.execute(f"SELECT setval('{sequence}', (SELECT coalesce(max(seq), 0) + 1 FROM {table}), false)")
