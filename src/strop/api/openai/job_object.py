"""Jobs, their events and checkpoints as clients see them: OpenAI's fields, and a few more."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, Field
from sqlalchemy import Connection

from strop.api.openai.results import ResultFiles
from strop.config import TrainConfig
from strop.jobs.job import Job
from strop.jobs.task import Event, TaskStatus
from strop.services.container import Services
from strop.services.job_request import Hyperparameters
from strop.services.trained import checkpoint_name
from strop.store import queries
from strop.store.queries.progress import Progress as RunProgress
from strop.store.queries.progress import progress, sampled_tokens
from strop.types import Json

ORGANIZATION = "org-strop"


class JobError(BaseModel):
    """Why a job failed."""

    code: str
    message: str
    param: str | None


class Resolved(BaseModel):
    """The hyperparameters in use, `auto` filled in."""

    batch_size: int
    compute_multiplier: float
    eval_interval: int | None
    eval_samples: int
    learning_rate_multiplier: float
    n_epochs: int
    reasoning_effort: str


class ReinforcementObject(BaseModel):
    """`method.reinforcement` of a job."""

    grader: dict[str, Any] | None
    hyperparameters: Resolved
    response_format: dict[str, Any] | None


class MethodObject(BaseModel):
    """`method` of a job."""

    type: Literal["reinforcement"] = "reinforcement"
    reinforcement: ReinforcementObject


class JobProgress(BaseModel):
    """How far a job has come."""

    step: int
    total_steps: int | None
    seconds_left: float | None


class JobObject(BaseModel):
    """A fine-tuning job."""

    object: Literal["fine_tuning.job"] = "fine_tuning.job"
    id: str
    model: str
    created_at: int
    finished_at: int | None
    fine_tuned_model: str | None
    organization_id: str = ORGANIZATION
    result_files: list[str]
    status: str = Field(description="OpenAI's six, and `paused`.")
    validation_file: str | None
    training_file: str
    trained_tokens: int | None = Field(description="Tokens that were sampled and trained on; null until the end.")
    error: JobError | None
    hyperparameters: Resolved
    seed: int
    estimated_finish: int | None
    integrations: list[dict[str, Any]]
    method: MethodObject
    metadata: dict[str, str] | None
    user_provided_suffix: str | None
    usage_metrics: None = None
    shared_with_openai: bool = False
    eval_id: None = None
    # strop's own.
    name: str
    wanted: Literal["pause", "cancel"] | None = Field(description="Asked for, and not done yet.")
    reason: str | None = Field(description="Why it waits, was restarted, paused or failed, and what to do.")
    queue_position: int | None = Field(description="1 for the next to run.")
    progress: JobProgress | None
    run_id: str | None
    started_at: int | None
    restarts: int
    forked_from: str | None = Field(description="Id of the checkpoint that it started from.")


class EventObject(BaseModel):
    """Something that happened to a job."""

    object: Literal["fine_tuning.job.event"] = "fine_tuning.job.event"
    id: str
    created_at: int
    level: Literal["info", "warn", "error"]
    message: str
    type: Literal["message", "metrics"]
    data: dict[str, Any] | None


class CheckpointMetrics(BaseModel):
    """Metrics of the step that a checkpoint was made after."""

    step: float
    train_loss: float | None
    train_mean_reward: float | None
    full_valid_mean_reward: float | None
    completion_tokens_mean: float | None
    train_mean_token_accuracy: None = None
    valid_loss: None = None
    valid_mean_token_accuracy: None = None
    full_valid_loss: None = None
    full_valid_mean_token_accuracy: None = None


class CheckpointObject(BaseModel):
    """A model that a job left behind."""

    object: Literal["fine_tuning.job.checkpoint"] = "fine_tuning.job.checkpoint"
    id: str
    created_at: int
    fine_tuned_model_checkpoint: str
    fine_tuning_job_id: str
    metrics: CheckpointMetrics
    step_number: int
    # strop's own.
    best: bool
    latest: bool
    bytes: int


def job_object(job: Job, services: Services) -> JobObject:
    """A job with all that is known of it now."""
    results = ResultFiles(services.database, services.folder, services.files).of(job)
    with services.database.read() as connection:
        run = progress(connection, job.run_id) if job.run_id else None
        tokens = sampled_tokens(connection, job.run_id) if job.status.finished and job.run_id else None
    resolved = _resolved(job)
    return JobObject(
        id=job.id,
        model=job.model,
        created_at=int(job.created_at),
        finished_at=_seconds(job.finished_at),
        fine_tuned_model=job.fine_tuned_model if job.status is TaskStatus.SUCCEEDED else None,
        result_files=[results] if results else [],
        status=job.status,
        validation_file=job.validation_file,
        training_file=job.training_file or "",
        trained_tokens=tokens,
        error=_error(job),
        hyperparameters=resolved,
        seed=job.config.seed,
        estimated_finish=_estimate(job, run),
        integrations=_integrations(job),
        method=_method(job, resolved),
        metadata=dict(job.metadata) if job.metadata is not None else None,
        user_provided_suffix=job.suffix,
        name=job.name,
        wanted=job.requested,
        reason=job.reason,
        queue_position=services.jobs.position(job),
        progress=JobProgress(step=run.step, total_steps=run.total_steps, seconds_left=run.seconds_left)
        if run
        else None,
        run_id=job.run_id,
        started_at=_seconds(job.started_at),
        restarts=job.restarts,
        forked_from=job.forked_from,
    )


def event_object(event: Event) -> EventObject:
    """An event."""
    return EventObject(
        id=event.id,
        created_at=int(event.created_at),
        level=event.level,
        message=event.message,
        type=event.type,
        data=dict(event.data) if event.data is not None else None,
    )


def checkpoint_objects(connection: Connection, job: Job) -> list[CheckpointObject]:
    """The checkpoints of a job, the newest first."""
    if job.run_id is None or progress(connection, job.run_id) is None:
        return []
    names = {"loss": "train_loss", "reward": "train_mean_reward"}
    names |= {"validation/reward": "full_valid_mean_reward", "response_length": "completion_tokens_mean"}
    curves = queries.series(connection, job.run_id, list(names), points=10_000)
    at = {name: dict(zip(curve["steps"], curve["values"], strict=True)) for name, curve in curves.items()}
    return [
        CheckpointObject(
            id=found["id"],
            created_at=int(found["created_at"]),
            fine_tuned_model_checkpoint=checkpoint_name(job, found["step"]),
            fine_tuning_job_id=job.id,
            metrics=CheckpointMetrics.model_validate(
                {"step": found["step"], **{shown: at[name].get(found["step"]) for name, shown in names.items()}}
            ),
            step_number=found["step"],
            best=found["best"],
            latest=found["latest"],
            bytes=found["bytes"],
        )
        for found in reversed(queries.checkpoints(connection, job.run_id))
    ]


def _seconds(moment: float | None) -> int | None:
    return None if moment is None else int(moment)


def _error(job: Job) -> JobError | None:
    """Never an empty object: `if job.error` would be true for it in OpenAI's client."""
    error = job.error
    if error is None:
        return None
    return JobError(code=error["code"] or "failed", message=error["message"] or "", param=error["param"])


def _estimate(job: Job, run: RunProgress | None) -> int | None:
    if job.status is not TaskStatus.RUNNING or run is None or run.seconds_left is None:
        return None
    return int(time.time() + run.seconds_left)


def _integrations(job: Job) -> list[dict[str, Any]]:
    return list(job.request.get("integrations") or [])


def _reinforcement(job: Job) -> Mapping[str, Json]:
    method = job.request.get("method") or {}
    return method.get("reinforcement") or {}


def _method(job: Job, resolved: Resolved) -> MethodObject:
    sent_there = _reinforcement(job)
    return MethodObject(
        reinforcement=ReinforcementObject(
            grader=sent_there.get("grader"),
            hyperparameters=resolved,
            response_format=sent_there.get("response_format"),
        )
    )


def _resolved(job: Job) -> Resolved:
    train = job.config.train
    asked = Hyperparameters.model_validate(_reinforcement(job).get("hyperparameters") or {})
    return Resolved(
        batch_size=train.batch_size,
        compute_multiplier=asked.compute_multiplier or train.samples_per_prompt / TrainConfig().samples_per_prompt,
        eval_interval=train.eval_every or None,
        eval_samples=job.config.eval.samples,
        learning_rate_multiplier=train.learning_rate_multiplier,
        n_epochs=train.epochs,
        reasoning_effort=asked.reasoning_effort or "default",
    )
