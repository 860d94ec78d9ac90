"""Tables of the server's database, the same for SQLite and PostgreSQL.

`seq` increases with every insert and orders lists independently of the clock; `id` is public. Times are seconds since
1970. JSON
columns contain text and are not searched. Runs, steps, metrics, prompts, rollouts and checkpoints are a copy of the
run folders and can be rebuilt from them; all other data exists only here.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    text,
)

metadata = MetaData(
    naming_convention={"ix": "ix_%(table_name)s_%(column_0_N_name)s", "uq": "uq_%(table_name)s_%(column_0_N_name)s"}
)

# SQLite numbers rows by itself only for a column that is exactly INTEGER.
_Seq = BigInteger().with_variant(Integer(), "sqlite")


_FAILED = text("cause IS NOT NULL")


def _seq() -> Column[int]:
    return Column("seq", _Seq, primary_key=True, autoincrement=True)


def _id() -> Column[str]:
    return Column("id", Text, nullable=False, unique=True)


def _time(name: str = "created_at", nullable: bool = False) -> Column[float]:
    return Column(name, Float(53), nullable=nullable)


def _task() -> Column[int]:
    return Column("task", _Seq, ForeignKey("tasks.seq", ondelete="CASCADE"), primary_key=True, autoincrement=False)


def _run() -> Column[int]:
    return Column("run", _Seq, ForeignKey("runs.seq", ondelete="CASCADE"), nullable=False)


files = Table(
    "files",
    metadata,
    _seq(),
    _id(),
    _time(),
    Column("filename", Text, nullable=False),
    Column("purpose", Text, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("sha256", Text, nullable=False),
    Column("rows", Integer),  # of JSONL; None for other files
    Column("status", Text, nullable=False),  # uploaded, processed, error
    Column("status_details", Text),
    _time("expires_at", nullable=True),
    sqlite_autoincrement=True,
)

datasets = Table(
    "datasets",
    metadata,
    _seq(),
    _id(),
    _time(),
    Column("name", Text, nullable=False, unique=True),
    Column("description", Text, nullable=False, server_default=""),
    Column("file_id", Text, ForeignKey("files.id"), nullable=False),
    sqlite_autoincrement=True,
)

rewards = Table(
    "rewards",
    metadata,
    _seq(),
    _id(),
    _time(),
    Column("name", Text, nullable=False, unique=True),
    Column("latest", Integer, nullable=False),  # newest version
    sqlite_autoincrement=True,
)

reward_versions = Table(
    "reward_versions",
    metadata,
    _seq(),
    _time(),
    Column("reward", _Seq, ForeignKey("rewards.seq", ondelete="CASCADE"), nullable=False),
    Column("version", Integer, nullable=False),
    Column("kind", Text, nullable=False),  # python, grader
    Column("source", Text, nullable=False),  # Python code, or a grader's JSON
    Column("env", Text, nullable=False, server_default="[]"),  # JSON: names of secrets
    UniqueConstraint("reward", "version"),
    sqlite_autoincrement=True,
)

tasks = Table(
    "tasks",
    metadata,
    _seq(),
    _id(),
    _time(),
    Column("kind", Text, nullable=False),  # a key of jobs.kinds.KINDS
    Column("status", Text, nullable=False, index=True),  # jobs.task.TaskStatus
    Column("requested", Text),  # pause or cancel, until that is done
    Column("reason", Text),  # why it waits, was restarted, paused or failed: for people
    Column("error_code", Text),
    Column("error_param", Text),
    Column("parent", _Seq, ForeignKey("tasks.seq", ondelete="CASCADE"), index=True),  # the task that waits for it
    Column("folder", Text, nullable=False),  # relative to the data folder
    Column("place", BigInteger, nullable=False),  # in the queue
    _time("started_at", nullable=True),
    _time("finished_at", nullable=True),
    Column("restarts", Integer, nullable=False, server_default="0"),
    # The lease: which server has the task. Every change by a server names the token that it was given.
    Column("token", Integer, nullable=False, server_default="0"),
    Column("lease_owner", Text),
    _time("lease_expires_at", nullable=True),
    Column("pid", Integer),
    Column("pid_started_at", Float(53)),
    sqlite_autoincrement=True,
)

events = Table(
    "events",
    metadata,
    _seq(),
    _time(),
    Column("task", _Seq, ForeignKey("tasks.seq", ondelete="CASCADE"), nullable=False),
    Column("level", Text, nullable=False),  # info, warn, error
    Column("type", Text, nullable=False),  # message, metrics
    Column("message", Text, nullable=False),
    Column("data", Text),  # JSON
    Column("once", Text),  # a second event of the same task with this key is not recorded
    UniqueConstraint("task", "once"),
    Index(None, "task", "seq"),
    sqlite_autoincrement=True,
)

# What a training task has beside its row in `tasks`.
jobs = Table(
    "jobs",
    metadata,
    _task(),
    Column("name", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("config", Text, nullable=False),  # JSON of the RunConfig
    Column("request", Text, nullable=False),  # JSON: what the client sent, echoed in answers
    Column("training_file", Text),
    Column("validation_file", Text),
    Column("fine_tuned_model", Text, unique=True),
    Column("forked_from", Text),  # id of a checkpoint
    Column("run_id", Text),
)

# What an evaluation task has beside its row in `tasks`.
evaluations = Table(
    "evaluations",
    metadata,
    _task(),
    Column("name", Text, nullable=False),
    Column("model", Text, nullable=False),  # for people
    Column("spec", Text, nullable=False),  # JSON: model, data, rewards, settings
    Column("rows_done", Integer, nullable=False, server_default="0"),
    Column("rows_total", Integer),
    Column("metrics", Text),  # JSON, once it is done
)

evaluation_rows = Table(
    "evaluation_rows",
    metadata,
    Column("evaluation", _Seq, ForeignKey("evaluations.task", ondelete="CASCADE"), primary_key=True),
    Column("row", Text, primary_key=True),
    Column("line", Integer, nullable=False),
    Column("prompt", Text, nullable=False),  # preview
    Column("reward", Float(53)),  # mean over its samples; None where one failed
    Column("passed", Integer, nullable=False),
    Column("samples", Integer, nullable=False),
    Column("components", Text, nullable=False),  # JSON: means
    Column("failure", Text),
    Column("rollouts", Text, nullable=False),  # JSON: the answers with their rewards
)

runs = Table(
    "runs",
    metadata,
    _seq(),
    _id(),
    _time(),
    Column("path", Text, nullable=False, unique=True),  # relative where it lies in the data folder
    Column("name", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("config", Text, nullable=False),  # JSON of the RunConfig
    Column("facts", Text, nullable=False, server_default="{}"),  # JSON of run.json
    Column("state", Text, nullable=False),  # store.rundir.RunState
    Column("phase", Text),
    Column("message", Text),
    Column("step", Integer, nullable=False, server_default="0"),
    Column("total_steps", Integer),
    _time("updated_at"),
    # The newest values of these metrics.
    Column("reward", Float(53)),
    Column("validation_reward", Float(53)),
    Column("metric_names", Text, nullable=False, server_default="[]"),  # JSON: what `steps.metrics` holds
    Column("metrics_inode", BigInteger),  # of the metrics.jsonl that its steps were read from
    sqlite_autoincrement=True,
)

# One row holds all metrics of a step: thirty curves of 10,000 steps are read in a tenth of the
# time that a row for each value takes.
steps = Table(
    "steps",
    metadata,
    Column("run", _Seq, ForeignKey("runs.seq", ondelete="CASCADE"), primary_key=True),
    Column("step", Integer, primary_key=True, autoincrement=False),
    Column("digest", BigInteger, nullable=False),  # CRC-32 of what it was read from: see store.runfiles
    Column("offset", BigInteger, nullable=False),  # of its line in metrics.jsonl
    Column("bytes", Integer, nullable=False),
    Column("prompts", Integer, nullable=False),
    Column("samples", Integer, nullable=False),
    Column("failed", Integer, nullable=False),
    Column("truncated", Integer, nullable=False),
    Column("reward", Float(53)),  # mean over its scored rollouts
    Column("damage", Text),  # what of it could not be read
    Column("metrics", LargeBinary, nullable=False),  # numbers of 8 bytes, in the order of `runs.metric_names`
    sqlite_with_rowid=False,
)

prompts = Table(
    "prompts",
    metadata,
    _seq(),
    _run(),
    Column("row", Text, nullable=False),  # id of the row
    Column("line", Integer, nullable=False),
    # Of the newest step that it was drawn in.
    Column("latest_step", Integer, nullable=False),
    Column("latest_samples", Integer, nullable=False),
    Column("latest_failed", Integer, nullable=False),
    Column("latest_truncated", Integer, nullable=False),
    Column("latest_reward", Float(53)),  # mean over its scored rollouts
    Column("latest_best", Float(53)),
    Column("latest_components", Text, nullable=False),  # JSON: means
    Column("latest_answer", Text, nullable=False),  # of the first sample, as in `rollouts`
    Column("preview", Text, nullable=False),  # the start of its last user turn
    Column("search", Text, nullable=False),  # the whole conversation, case folded
    UniqueConstraint("run", "row"),
    sqlite_autoincrement=True,
)

rollouts = Table(
    "rollouts",
    metadata,
    _seq(),
    _run(),
    Column("prompt", _Seq, ForeignKey("prompts.seq", ondelete="CASCADE"), nullable=False),
    Column("step", Integer, nullable=False),
    Column("sample", Integer, nullable=False),
    Column("reward", Float(53)),
    Column("advantage", Float(53)),
    Column("components", Text, nullable=False),  # JSON
    Column("stop_reason", Text, nullable=False),
    Column("cause", Text),  # of its failure
    Column("length", Integer, nullable=False),  # sampled tokens
    # Where the whole rollout stands in the file of its step.
    Column("offset", BigInteger, nullable=False),
    Column("bytes", Integer, nullable=False),
    Column("answer", Text, nullable=False),  # the start of its last turn
    Column("search", Text, nullable=False),  # every turn after the prompt, case folded
    UniqueConstraint("prompt", "step", "sample"),
    Index(None, "run", "step", "seq"),
    Index(None, "run", "reward", "seq"),
    # Failures are few: to find that a long run has none must not take a look at each of its rollouts.
    Index("ix_rollouts_failed", "run", "step", "seq", sqlite_where=_FAILED, postgresql_where=_FAILED),
    sqlite_autoincrement=True,
)

checkpoints = Table(
    "checkpoints",
    metadata,
    _seq(),
    _id(),
    _time(),
    _run(),
    Column("step", Integer, nullable=False),
    Column("path", Text, nullable=False),  # relative to the run folder
    Column("bytes", BigInteger, nullable=False),
    Column("validation_reward", Float(53)),
    Column("state", Text, nullable=False),
    Column("latest", Boolean, nullable=False),
    Column("best", Boolean, nullable=False),
    UniqueConstraint("run", "step"),
    sqlite_autoincrement=True,
)

deployments = Table(
    "deployments",
    metadata,
    _seq(),
    _id(),
    _time(),
    Column("name", Text, nullable=False, unique=True),  # what `model` in a chat request says
    Column("source", Text, nullable=False),  # catalogue name, hub id, folder, or id of a checkpoint
    Column("path", Text, nullable=False),  # what the engine loads
    Column("wanted", Text, nullable=False),  # loaded, unloaded
    Column("settings", Text, nullable=False, server_default="{}"),  # JSON
    _time("last_used_at", nullable=True),
    Column("requests", BigInteger, nullable=False, server_default="0"),
    Column("prompt_tokens", BigInteger, nullable=False, server_default="0"),
    Column("completion_tokens", BigInteger, nullable=False, server_default="0"),
    sqlite_autoincrement=True,
)

keys = Table(
    "keys",
    metadata,
    _seq(),
    _id(),
    _time(),
    Column("name", Text, nullable=False),
    Column("hash", Text, nullable=False, unique=True),  # SHA-256: the keys are random, 256 bits
    Column("prefix", Text, nullable=False),  # what people recognise it by
    _time("last_used_at", nullable=True),
    _time("revoked_at", nullable=True),
    sqlite_autoincrement=True,
)

secrets = Table(
    "secrets",
    metadata,
    _seq(),
    _time(),
    _time("updated_at"),
    Column("name", Text, nullable=False, unique=True),
    Column("value", LargeBinary, nullable=False),  # encrypted: the key lies beside the database
    sqlite_autoincrement=True,
)

providers = Table(
    "providers",
    metadata,
    _seq(),
    _time(),
    _time("updated_at"),
    Column("name", Text, nullable=False, unique=True),
    Column("base_url", Text, nullable=False),
    Column("api_key_env", Text),  # name of the secret that holds the key
    sqlite_autoincrement=True,
)

drafts = Table(
    "drafts",
    metadata,
    _seq(),
    _id(),
    _time(),
    _time("updated_at"),
    Column("content", Text, nullable=False),  # JSON: what the wizard's fields hold
    Column("job_id", Text),  # of the job that was made of it
    sqlite_autoincrement=True,
)
