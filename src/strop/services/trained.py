"""Trained models by the names that clients use: `ft:` names, ids of checkpoints and runs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy import Connection

from strop.errors import NotFound
from strop.jobs.job import Job, JobQueue
from strop.store import queries
from strop.store.datafolder import DataFolder
from strop.store.tables import runs
from strop.types import Json

_CHECKPOINT = re.compile(r"(?P<model>ft:.+):ckpt-step-(?P<step>[0-9]{1,9})")


@dataclass(frozen=True)
class Trained:
    """A checkpoint and its name."""

    id: str
    name: str
    """`ft:…:ckpt-step-N`, or the run's name and the step where no job made it."""
    folder: Path
    run_id: str


def is_trained(text: str) -> bool:
    """Whether a name is of the kinds that `find_trained` knows."""
    return text.startswith(("ft:", "ftckpt_", "run_"))


def checkpoint_name(job: Job, step: int) -> str:
    """What `model` of a chat request says for a checkpoint of a job."""
    return f"{job.model_name}:ckpt-step-{step}"


def find_trained(jobs: JobQueue, folder: DataFolder, text: str) -> Trained:
    """The checkpoint that is meant. A model or a run without a step stands for its best checkpoint,
    or its newest where none was validated.

    NotFound, saying which part is unknown.
    """
    with jobs.database.read() as connection:
        found: Mapping[str, Json]
        if text.startswith("ftckpt_"):
            found = queries.checkpoint(connection, text)
        else:
            found = _of_run(connection, *_run_and_step(jobs, text), text)
        run_name = connection.scalar(sa.select(runs.c.name).where(runs.c.id == found["run_id"]))
    job = jobs.by_run(found["run_id"])
    name = checkpoint_name(job, found["step"]) if job else f"{run_name}-step-{found['step']}"
    return Trained(found["id"], name, folder.found(found["run_path"]) / found["path"], found["run_id"])


def _run_and_step(jobs: JobQueue, text: str) -> tuple[str, int | None]:
    if text.startswith("run_"):
        return text, None
    match = _CHECKPOINT.fullmatch(text)
    model, step = (match["model"], int(match["step"])) if match else (text, None)
    job = jobs.by_model_name(model)
    if job is None:
        raise NotFound(f"no model {text!r}: no job of this server has that name", param="model")
    if job.run_id is None:
        raise NotFound(f"no model {text!r}: job {job.id} has not begun", param="model")
    return job.run_id, step


def _of_run(connection: Connection, run_id: str, step: int | None, text: str) -> Mapping[str, Json]:
    known = queries.checkpoints(connection, run_id)
    meant = known if step is None else [entry for entry in known if entry["step"] == step]
    found = _best_or_newest(meant)
    if found is None:
        steps = ", ".join(str(entry["step"]) for entry in known) or "none yet"
        raise NotFound(f"no model {text!r}: checkpoints of {run_id} are at step {steps}", param="model")
    return found


def _best_or_newest(known: Sequence[Mapping[str, Json]]) -> Mapping[str, Json] | None:
    best = next((entry for entry in known if entry["best"]), None)
    return best or (known[-1] if known else None)
