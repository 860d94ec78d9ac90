"""`/v1/strop/jobs`: what OpenAI has no call for."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal

import sqlalchemy as sa
from fastapi import APIRouter, Query
from pydantic import BaseModel, Field
from starlette.requests import Request

from strop.api.dependencies import Provided
from strop.api.openai.job_object import JobObject, job_object
from strop.api.openai.jobs import find_jobs
from strop.api.paging import After, Limit, Page, page
from strop.errors import Conflict, InvalidRequest, NotFound
from strop.http.bodies import Body
from strop.jobs.job import Job
from strop.jobs.task import TaskStatus
from strop.services.container import Services
from strop.services.job_creation import changed, create_job, sent
from strop.services.trained import find_trained
from strop.store.files import sync_folder
from strop.store.tables import deployments

router = APIRouter(prefix="/jobs")


class JobDetails(JobObject):
    """A job with all that it was made from."""

    config: dict[str, Any] = Field(description="The tables of config.toml, defaults filled in.")
    request: dict[str, Any] = Field(description="What the client sent.")


class CloneBody(Body):
    """A job like another one."""

    changes: dict[str, Any] = Field({}, description="Fields of the request, merged into those of the old one.")


class ForkBody(CloneBody):
    """A job that starts from a checkpoint of another one."""

    checkpoint: str = Field(description="Id of the checkpoint, or `ft:…:ckpt-step-N`.")


class DeletedJob(BaseModel):
    """A job that is gone."""

    object: Literal["fine_tuning.job"] = "fine_tuning.job"
    id: str
    deleted: bool = True


@router.get("")
def list_jobs(
    services: Provided,
    after: After = None,
    limit: Limit = 20,
    status: Annotated[list[TaskStatus] | None, Query(description="Only these; may be given often.")] = None,
    search: Annotated[str, Query(description="Part of a name, an id, a model, or a value in metadata.")] = "",
) -> Page[JobObject]:
    """Jobs, the newest first."""
    wanted = search.casefold()

    def matches(job: Job) -> bool:
        texts = (job.id, job.name, job.model, job.model_name, *(job.metadata or {}).values())
        return any(wanted in text.casefold() for text in texts)

    found = find_jobs(services.jobs, matches, after=after, limit=limit + 1, status=status or ())
    return page([job_object(job, services) for job in found], limit)


@router.get("/{job_id}")
def retrieve_job(job_id: str, services: Provided) -> JobDetails:
    """One job, with its configuration and the request that made it."""
    job = services.jobs.get(job_id)
    shown = job_object(job, services).model_dump()
    return JobDetails(**shown, config=job.config.model_dump(mode="json"), request=sent(job))


@router.post("/{job_id}/clone")
def clone_job(job_id: str, body: CloneBody, request: Request, services: Provided) -> JobObject:
    """Create the same job once more, from the start, with changes."""
    old = services.jobs.get(job_id)
    key = getattr(request.state, "key", None)
    return job_object(create_job(changed(old, body.changes), services, key, repeated=False), services)


@router.post("/{job_id}/fork")
def fork_job(job_id: str, body: ForkBody, request: Request, services: Provided) -> JobObject:
    """Create a job with the settings of this one, and changes, that starts from one of its checkpoints."""
    old = services.jobs.get(job_id)
    found = find_trained(services.jobs, services.folder, body.checkpoint)
    if found.run_id != old.run_id:
        raise InvalidRequest(f"checkpoint {body.checkpoint} is not one of job {job_id}", param="checkpoint")
    changes = {**body.changes, "model": found.id}
    key = getattr(request.state, "key", None)
    return job_object(create_job(changed(old, changes), services, key, repeated=False), services)


@router.delete("/{job_id}")
def delete_job(job_id: str, services: Provided) -> DeletedJob:
    """Delete a finished job with its run and its checkpoints."""
    job = services.jobs.get(job_id)
    folder = services.folder.found(job.folder)
    if not job.status.finished:
        raise Conflict(f"job {job_id} is {job.status}; cancel it first, then delete it")
    _refuse_deployed(services, job_id, folder)
    services.jobs.delete(job_id)
    if job.run_id is not None:
        with suppress(NotFound):
            services.ingester.forget(job.run_id)
    _remove(folder)
    return DeletedJob(id=job_id)


def _refuse_deployed(services: Services, job_id: str, folder: Path) -> None:
    """A model that answers requests must not lose its files. Jobs that start from one keep their own."""
    with services.database.read() as connection:
        rows = connection.execute(sa.select(deployments.c.name, deployments.c.path)).all()
    for name, path in rows:
        if services.folder.found(path).is_relative_to(folder):
            raise Conflict(f"deployment {name} is a checkpoint of job {job_id}; delete that first")


def _remove(folder: Path) -> None:
    """Hide a folder, then delete it: half of a run should not be found."""
    if not folder.exists():
        return
    hidden = folder.with_name(f".deleted-{folder.name}")
    os.replace(folder, hidden)
    sync_folder(folder.parent)
    shutil.rmtree(hidden, ignore_errors=True)
