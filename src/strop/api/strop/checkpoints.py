"""`/v1/strop/checkpoints`: what runs left behind, to list, download and delete."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

import sqlalchemy as sa
from fastapi import APIRouter, Path
from sqlalchemy import Connection
from starlette.responses import StreamingResponse

from strop.api.answers import Answer, Deleted, RunId
from strop.api.dependencies import Provided
from strop.api.paging import After, Limit, Page, page
from strop.api.strop.runfiles import BINARY, ZIP, attachment, whole_file
from strop.errors import Conflict, RunError
from strop.services.container import Services
from strop.services.run_files import tree
from strop.store import queries
from strop.store.archive import zip_files
from strop.store.checkpoints import CheckpointStore, read_checkpoint
from strop.store.datasets import ENDED
from strop.store.rundir import RunDir
from strop.store.tables import deployments, evaluations, jobs, tasks
from strop.types import Json

router = APIRouter()

CheckpointId = Annotated[str, Path(description="Id of a checkpoint, `ftckpt_…`.")]


class CheckpointObject(Answer):
    """A checkpoint of a run."""

    object: Literal["checkpoint"] = "checkpoint"
    id: str
    """What to deploy, to evaluate, or to start a job from."""
    run_id: str
    step: int
    path: str
    """From the folder of the run on."""
    bytes: int
    validation_reward: float | None
    state: str
    latest: bool
    best: bool
    """Of the highest validation reward."""
    created_at: int


class CheckpointFile(Answer):
    """A file of a checkpoint, as its manifest has it."""

    name: str
    bytes: int
    sha256: str


class CheckpointDetails(CheckpointObject):
    """A checkpoint with its files."""

    files: list[CheckpointFile]
    facts: dict[str, Any]
    """What the trainer noted: model, method, format, time."""


@router.get("/checkpoints")
def list_all_checkpoints(services: Provided, after: After = None, limit: Limit = 100) -> Page[CheckpointObject]:
    """The checkpoints of all runs, the newest first."""
    with services.database.read() as connection:
        found = queries.all_checkpoints(connection, limit=limit + 1, after=after)
    return page([_shown(entry) for entry in found], limit)


@router.get("/runs/{run_id}/checkpoints")
def list_checkpoints(run_id: RunId, services: Provided) -> Page[CheckpointObject]:
    """The checkpoints of a run, the newest first."""
    services.ingester.refresh(run_id)
    with services.database.read() as connection:
        found = [_shown(entry) for entry in reversed(queries.checkpoints(connection, run_id))]
    return page(found, len(found))


@router.get("/checkpoints/{checkpoint_id}")
def get_checkpoint(checkpoint_id: CheckpointId, services: Provided) -> CheckpointDetails:
    """A checkpoint with all its files."""
    entry = _entry(services, checkpoint_id)
    tree(services, entry["run_id"]).entries(entry["path"])  # NotFound for a path out of the run
    manifest = read_checkpoint(services.ingester.folder(entry["run_id"]) / entry["path"])
    return CheckpointDetails(
        **vars(_shown(entry)),
        files=[
            CheckpointFile(name=name, bytes=file["size"], sha256=file["sha256"])
            for name, file in sorted(manifest.files.items())
        ],
        facts={name: value for name, value in manifest.facts.items() if name != "files"},
    )


@router.get("/checkpoints/{checkpoint_id}/archive", response_class=StreamingResponse, responses=ZIP)
def download_checkpoint(checkpoint_id: CheckpointId, services: Provided) -> StreamingResponse:
    """All files of a checkpoint as a zip archive that is written while it is sent."""
    entry = _entry(services, checkpoint_id)
    files, folder = tree(services, entry["run_id"]), entry["path"]
    files.entries(folder)  # NotFound, before the answer begins
    name = f"{entry['run_id']}-step-{entry['step']:06d}.zip"
    return attachment(zip_files(files, files.files(folder), folder), name, "application/zip")


@router.get("/checkpoints/{checkpoint_id}/files/{name}", response_class=StreamingResponse, responses=BINARY)
def download_checkpoint_file(checkpoint_id: CheckpointId, name: str, services: Provided) -> StreamingResponse:
    """One file of a checkpoint."""
    entry = _entry(services, checkpoint_id)
    return whole_file(tree(services, entry["run_id"]), f"{entry['path']}/{name}")


@router.delete("/checkpoints/{checkpoint_id}")
def delete_checkpoint(checkpoint_id: CheckpointId, services: Provided) -> Deleted:
    """Delete a checkpoint from disk. Refused for the latest and the best of a run, while the run is
    trained, and while a deployment, or a job or an evaluation that is not finished, needs it."""
    entry = _entry(services, checkpoint_id)
    run = RunDir(services.ingester.folder(entry["run_id"]))
    place = services.folder.stored(run.path / entry["path"])
    with services.database.read() as connection:
        reason = _needed(connection, entry, place)
    if reason is not None:
        raise Conflict(f"{checkpoint_id} {reason}")
    try:
        with run.lock():
            CheckpointStore(run.checkpoints, run.checkpoint_status_file, keep=1).delete(entry["step"])
    except RunError as error:
        raise Conflict(f"{error.message}; pause it first") from None
    services.ingester.refresh(entry["run_id"])
    return Deleted(object="checkpoint", id=checkpoint_id)


def _entry(services: Services, checkpoint_id: str) -> dict[str, Any]:
    with services.database.read() as connection:
        return queries.checkpoint(connection, checkpoint_id)


def _needed(connection: Connection, entry: dict[str, Json], place: str) -> str | None:
    """Why a checkpoint has to stay; `place` is where it lies, as evaluations name it."""
    if entry["latest"]:
        return "is the latest of its run, which could not be resumed without it"
    if entry["best"]:
        return "is the best of its run"
    deployed = connection.scalar(sa.select(deployments.c.name).where(deployments.c.source == entry["id"]).limit(1))
    if deployed is not None:
        return f"is deployed as {deployed}; delete that deployment first"
    forked = (
        sa.select(tasks.c.id)
        .join_from(tasks, jobs)
        .where(jobs.c.forked_from == entry["id"], tasks.c.status.not_in(ENDED))
    )
    job = connection.scalar(forked.limit(1))
    if job is not None:
        return f"is what {job} starts from; cancel that job, or wait for its end"
    reads = evaluations.c.spec.contains(json.dumps(place)[1:], autoescape=True)
    asked = sa.select(tasks.c.id).join_from(tasks, evaluations).where(reads, tasks.c.status.not_in(ENDED))
    evaluation = connection.scalar(asked.limit(1))
    return None if evaluation is None else f"is what {evaluation} evaluates; cancel that one, or wait for its end"


def _shown(entry: dict[str, Json]) -> CheckpointObject:
    fields = {name: entry[name] for name in CheckpointObject.model_fields if name in entry}
    return CheckpointObject(**{**fields, "created_at": int(entry["created_at"])})
