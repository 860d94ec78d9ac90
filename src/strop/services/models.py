"""What `model` of a request may say: base models, deployments, fine-tuned models and checkpoints."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import sqlalchemy as sa
from pydantic import BaseModel, Field

from strop.errors import InvalidRequest, NotFound
from strop.jobs.job import Job
from strop.policy.catalogue import CATALOGUE, Entry, find_entry
from strop.policy.installed import installed_folder
from strop.policy.weights import whole_folder
from strop.services.container import Services
from strop.services.deployments import Deployment
from strop.services.threads import in_thread
from strop.services.trained import checkpoint_name, find_trained, is_trained
from strop.store.tables import checkpoints, jobs, runs, tasks

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


async def list_all(services: Services) -> list[ModelObject]:
    """Every model: base models on this machine, deployments, and what jobs made; each name once."""
    found = await _base_models()
    found += [_deployed(deployment) for deployment in await _all_deployments(services)]
    found += await trained(services)
    names: dict[str, ModelObject] = {}
    for model in found:
        names.setdefault(model.id, model)
    return list(names.values())


async def get(services: Services, name: str) -> ModelObject:
    """One model. NotFound for an unknown one."""
    base = await _found_base(name)
    if base is not None:
        return base
    try:
        return _deployed(await services.deployments.get(name))
    except NotFound:
        return await _trained(services, name)


async def delete(services: Services, name: str) -> None:
    """End the deployment of that name. The run that a fine-tuned model comes from stays, with its checkpoints.

    InvalidRequest for a base model, NotFound for what is not deployed.
    """
    try:
        await services.deployments.delete(name)
    except NotFound:
        if find_entry(name) is not None:
            problem = f"{name} is a base model, which is not deleted; only deployments are"
            raise InvalidRequest(problem, param="model") from None
        if is_trained(name):
            await _found_trained(services, name)
            problem = f"{name} is not deployed; to delete the model itself, delete its job"
            raise NotFound(problem, param="model") from None
        raise


@in_thread
def servable_names(services: Services) -> list[str]:
    """Names for a chat or a deployment: models on this machine and models made by jobs."""
    own = [name for name in CATALOGUE if installed_folder(name) is not None]
    return [*own, *(job.fine_tuned_model for job in services.jobs.list(limit=100) if job.fine_tuned_model)]


async def chat_names(services: Services) -> list[str]:
    """What a chat offers: deployments first, then what is deployed when it is asked."""
    deployed = [deployment.name for deployment in await services.deployments.list(limit=200)]
    return list(dict.fromkeys([*deployed, *await servable_names(services)]))


async def _all_deployments(services: Services) -> list[Deployment]:
    found: list[Deployment] = []
    while True:
        portion = await services.deployments.list(found[-1].id if found else None, _PORTION)
        found += portion[:_PORTION]
        if len(portion) < _PORTION:
            return found


@in_thread
def _base_models() -> list[ModelObject]:
    places = ((entry, whole_folder(entry.name)) for entry in CATALOGUE.values())
    return [_base(entry, folder, entry.name) for entry, folder in places if folder is not None]


@in_thread
def _found_base(name: str) -> ModelObject | None:
    entry = find_entry(name)
    folder = None if entry is None else whole_folder(entry.name)
    return None if entry is None or folder is None else _base(entry, folder, name)


@in_thread
def _found_trained(services: Services, name: str) -> None:
    find_trained(services.jobs, services.folder, name)


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


@in_thread
def trained(services: Services) -> list[ModelObject]:
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


@in_thread
def _trained(services: Services, name: str) -> ModelObject:
    """A fine-tuned model or a checkpoint by name. NotFound for everything else."""
    if not name.startswith("ft:"):
        raise NotFound(f"no model {name!r}; GET /v1/models lists them", param="model")
    find_trained(services.jobs, services.folder, name)
    found = next((model for model in trained.blocking(services) if model.id == name), None)
    if found is None:
        raise NotFound(f"no model {name!r} yet: its job is not finished; its checkpoints have names", param="model")
    return found
