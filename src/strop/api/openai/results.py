"""The metrics of a finished job as a CSV file, under the names that hosted services give them."""

from __future__ import annotations

import csv
import io
import logging
import threading
from collections.abc import Iterable, Mapping
from typing import Any

import sqlalchemy as sa

from strop.errors import StropError
from strop.jobs.job import Job
from strop.jobs.reports import step_event
from strop.store.datafolder import DataFolder
from strop.store.db import Database
from strop.store.rundir import RunDir
from strop.store.tables import files
from strop.store.uploads import FileStore
from strop.types import Json

log = logging.getLogger("strop.api")

PURPOSE = "fine-tune-results"

_NAMES = (
    "step",
    "train_mean_reward",
    "full_valid_mean_reward",
    "completion_tokens_mean",
    "reasoning_tokens_mean",
    "mean_unresponsive_rewards",
)
_DURATIONS = {
    "sampling": "sampling_duration",
    "training": "training_duration",
    "eval": "eval_duration",
    "full_iteration": "total_duration",
}

_one_at_a_time = threading.Lock()


class ResultFiles:
    """Makes the file of a job once it is finished; a job that was resumed after a failure gets a new one."""

    def __init__(self, database: Database, folder: DataFolder, store: FileStore) -> None:
        self._database = database
        self._folder = folder
        self._store = store

    def of(self, job: Job) -> str | None:
        """Id of the file; None for a job that is not finished, or has no step to tell of."""
        if not job.status.finished:
            return None
        known = self._known(job)
        if known is not None:
            return known
        try:
            with _one_at_a_time:
                return self._known(job) or self._make(job)
        except (OSError, StropError):  # a full disk must not hide the job
            log.exception("job %s: no file of its metrics", job.id)
            return None

    def _known(self, job: Job) -> str | None:
        query = sa.select(files.c.id).where(
            files.c.purpose == PURPOSE,
            files.c.filename == _filename(job),
            files.c.created_at >= (job.finished_at or 0.0),
        )
        with self._database.read() as connection:
            return connection.scalar(query.order_by(files.c.seq.desc()).limit(1))

    def _make(self, job: Job) -> str | None:
        run = RunDir(self._folder.found(job.folder))
        lines = run.metrics()
        if not lines:
            return None
        text = results_csv(job, lines, run.status().get("total_steps"))
        return self._store.add(_filename(job), PURPOSE, [text.encode()]).id


def results_csv(job: Job, lines: Iterable[Mapping[str, Json]], total_steps: int | None) -> str:
    """One row a step: the columns of hosted services first, then every metric of strop's by its own name."""
    rows = [{**_row(job, line, total_steps), **line} for line in lines]
    columns = dict.fromkeys(name for row in rows for name in row)
    output = io.StringIO()
    writer = csv.DictWriter(output, list(columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return output.getvalue()


def _row(job: Job, line: Mapping[str, Json], total_steps: int | None) -> dict[str, Json]:
    data: Mapping[str, Any] = step_event(job, line, total_steps).data or {}
    row = {name: data.get(name) for name in _NAMES}
    row |= {shown: data["timing"]["step"].get(name) for name, shown in _DURATIONS.items()}
    for grader in data["scores"]["graders"]:
        place = f"scores/graders/{grader['type']}/{grader['name']}"
        row |= {f"{place}/{name}": grader[name] for name in ("train_reward_mean", "valid_reward_mean")}
    for grader in data["errors"]["graders"]:
        place = f"errors/graders/{grader['type']}/{grader['name']}/errors"
        row |= {f"{place}/{name}": value for name, value in grader.items() if name not in ("name", "type")}
    return {**row, "pg_loss_sum": line.get("loss")}


def _filename(job: Job) -> str:
    return f"{job.id}-metrics.csv"
