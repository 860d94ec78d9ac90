"""`/v1/models`: what `model` of a request may say."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import sqlalchemy as sa
from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from strop.api.dependencies import Provided
from strop.api.deployments import Deployment
from strop.api.services import Services
from strop.api.sources import checkpoint_name, find_trained, is_trained
from strop.errors import InvalidRequest, NotFound
from strop.jobs.job import Job
from strop.policy.catalogue import CATALOGUE, Entry, find_entry
from strop.policy.weights import whole_folder
from strop.store.tables import checkpoints, jobs, runs, tasks

router = APIRouter(prefix="/models")

_OWNER = "strop"
_PORTION = 1000


class ModelObject(BaseModel):
    """A model that can be asked, or trained."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str
    shutdown_date: None = None
    # strop's own.
    kind: Literal["base", "deployment", "fine-tuned", "checkpoint"]
    base: str | None = Field(description="What it was made from.")
    job_id: str | None = None
    step: int | None = None


class ModelList(BaseModel):
    """All models: those of the catalogue that are on this machine, deployments, fine-tuned ones."""

    object: Literal["list"] = "list"
    data: list[ModelObject]


class DeletedModel(BaseModel):
    """A model that no longer answers."""

    id: str
    object: Literal["model"] = "model"
    deleted: bool = True


@router.get("")
async def list_models(services: Provided) -> ModelList:
    """Every model. They are not listed page by page."""
    found = await run_in_threadpool(_base_models)
    found += [_deployed(deployment) for deployment in await _all_deployments(services)]
    found += await run_in_threadpool(_trained_models, services)
    names: dict[str, ModelObject] = {}
    for model in found:
        names.setdefault(model.id, model)
    return ModelList(data=list(names.values()))


@router.get("/{model_id:path}")
async def retrieve_model(model_id: str, services: Provided) -> ModelObject:
    """One model."""
    entry = find_entry(model_id)
    if entry is not None:
        folder = await run_in_threadpool(whole_folder, entry.name)
        if folder is not None:
            return _base(entry, folder, model_id)
    try:
        return _deployed(await services.deployments.get(model_id))
    except NotFound:
        return await run_in_threadpool(_trained, services, model_id)


@router.delete("/{model_id:path}")
async def delete_model(model_id: str, services: Provided) -> DeletedModel:
    """End the deployment of that name. The run that a fine-tuned model comes from stays, with its checkpoints."""
    try:
        await services.deployments.delete(model_id)
    except NotFound:
        if find_entry(model_id) is not None:
            problem = f"{model_id} is a base model, which is not deleted; only deployments are"
            raise InvalidRequest(problem, param="model") from None
        if is_trained(model_id):
            await run_in_threadpool(find_trained, services.jobs, services.folder, model_id)
            problem = f"{model_id} is not deployed; to delete the model itself, delete its job"
            raise NotFound(problem, param="model") from None
        raise
    return DeletedModel(id=model_id)


async def _all_deployments(services: Services) -> list[Deployment]:
    found: list[Deployment] = []
    while True:
        portion = await services.deployments.list(found[-1].id if found else None, _PORTION)
        found += portion[:_PORTION]
        if len(portion) < _PORTION:
            return found


def _base_models() -> list[ModelObject]:
    places = ((entry, whole_folder(entry.name)) for entry in CATALOGUE.values())
    return [_base(entry, folder, entry.name) for entry, folder in places if folder is not None]


def _base(entry: Entry, folder: Path, name: str) -> ModelObject:
    created = int((folder / "config.json").stat().st_mtime)
    return ModelObject(id=name, created=created, owned_by=entry.repository.partition("/")[0], kind="base", base=None)


def _deployed(deployment: Deployment) -> ModelObject:
    return ModelObject(
        id=deployment.name,
        created=int(deployment.created_at),
        owned_by=_OWNER,
        kind="deployment",
        base=deployment.source,
    )


def _trained_models(services: Services) -> list[ModelObject]:
    """Fine-tuned models, the newest first, each before its checkpoints."""
    columns = (tasks.c.id, checkpoints.c.step, checkpoints.c.created_at)
    query = (
        sa.select(*columns)
        .join_from(tasks, jobs)
        .join(runs, jobs.c.run_id == runs.c.id)
        .join(checkpoints, checkpoints.c.run == runs.c.seq)
        .order_by(tasks.c.seq.desc(), checkpoints.c.step.desc())
    )
    with services.database.read() as connection:
        rows = connection.execute(query).all()
    found: list[ModelObject] = []
    for job_id in dict.fromkeys(row.id for row in rows):
        job = services.jobs.get(job_id)
        found += _of_job(job, [(row.step, row.created_at) for row in rows if row.id == job_id])
    return found


def _of_job(job: Job, steps: Iterable[tuple[int, float]]) -> Iterable[ModelObject]:
    if job.fine_tuned_model is not None:
        yield ModelObject(
            id=job.fine_tuned_model,
            created=int(job.finished_at or job.created_at),
            owned_by=_OWNER,
            kind="fine-tuned",
            base=job.model,
            job_id=job.id,
        )
    for step, created_at in steps:
        yield ModelObject(
            id=checkpoint_name(job, step),
            created=int(created_at),
            owned_by=_OWNER,
            kind="checkpoint",
            base=job.model,
            job_id=job.id,
            step=step,
        )


def _trained(services: Services, name: str) -> ModelObject:
    """A fine-tuned model or a checkpoint by name. NotFound for everything else."""
    if not name.startswith("ft:"):
        raise NotFound(f"no model {name!r}; GET /v1/models lists them", param="model")
    find_trained(services.jobs, services.folder, name)
    found = next((model for model in _trained_models(services) if model.id == name), None)
    if found is None:
        raise NotFound(f"no model {name!r} yet: its job is not finished; its checkpoints have names", param="model")
    return found
