"""`/v1/strop/runs`: what is trained, was trained, and was imported."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import sqlalchemy as sa
from fastapi import APIRouter, Query
from pydantic import Field
from sqlalchemy import Connection
from starlette.responses import Response

from strop.api.answers import NOT_MODIFIED, Answer, Cached, Deleted, RunId
from strop.api.dependencies import Provided
from strop.api.paging import After, Limit, Page, page
from strop.api.strop import curves, explorer, findings, live, runfiles
from strop.config import parse_config
from strop.errors import Conflict, InvalidRequest
from strop.http.bodies import Body
from strop.services.container import Services
from strop.store import queries
from strop.store.datasets import ENDED
from strop.store.queries.live import sparklines, stamp, stamps
from strop.store.queries.progress import progress
from strop.store.recorder import summary
from strop.store.rundir import RunState
from strop.store.tables import jobs, tasks
from strop.types import Json, StepRecord

router = APIRouter()
for part in (curves, explorer, findings, live, runfiles):
    router.include_router(part.router)

State = Literal["starting", "running", "interrupted", "paused", "failed", "succeeded"]

SPARKLINE_POINTS = 32
_SHOWN_BYTES = 256 * 1024


class RunObject(Answer):
    """A run: a folder with everything about one training."""

    object: Literal["run"] = "run"
    id: str
    name: str
    model: str
    """What it started from."""
    state: State
    """`interrupted`: it should be trained, but no process does."""
    phase: str | None
    """What its process is doing."""
    message: str | None
    """Why it is in this state, and what to do."""
    step: int
    """Steps that are done."""
    total_steps: int | None
    """None until the data is loaded."""
    seconds_left: float | None
    """At the speed of the newest steps; None where it is not trained."""
    seconds_per_step: float | None
    reward: float | None
    """Newest mean reward."""
    validation_reward: float | None
    """Newest mean reward on held-out rows."""
    sparkline: list[float | None]
    """Mean rewards of steps that are evenly chosen, the newest last."""
    job_id: str | None
    """The job that it belongs to; none for an imported run."""
    created_at: int
    updated_at: int


class CurveObject(Answer):
    """Values by step."""

    steps: list[int]
    values: list[float]


class RunMetrics(Answer):
    """Curves under the names that users of hosted reinforcement fine-tuning know, and the newest of all values."""

    latest: dict[str, float]
    training_metrics: dict[str, CurveObject]
    validation_metrics: dict[str, CurveObject]


class RunDetails(RunObject):
    """A run with its configuration and its metrics."""

    folder: str
    """Where it lies on the server."""
    config: dict[str, Any]
    """The tables of config.toml, defaults filled in."""
    facts: dict[str, Any]
    """Versions and hardware that it was trained with."""
    prompts: int
    """Different prompts that were drawn."""
    rollouts: int
    failed: int
    """Rollouts that could not be scored."""
    elapsed_seconds: float
    """Since it was made, until its newest sign of life or now."""
    summary: str
    """The newest values in the form of training.log."""
    metrics: RunMetrics


class ImportRequest(Body):
    """A run folder on the server's machine."""

    path: str = Field(min_length=1, description="Absolute path; `~` stands for the server's home.")


class RewardCode(Answer):
    """A reward function of a run."""

    object: Literal["run.reward"] = "run.reward"
    id: str
    """Its name in metrics and files."""
    weight: float
    source: str
    """As in config.toml."""
    code: str | None
    """What the file holds now; None where it cannot be shown."""


@router.get("/runs", responses=NOT_MODIFIED, response_model=Page[RunObject])
def list_runs(
    services: Provided,
    cached: Cached,
    after: After = None,
    limit: Limit = 50,
    state: State | None = None,
    search: Annotated[str, Query(description="Part of a name, a model or an id.")] = "",
    sort: Annotated[
        str, Query(description="Such as `-created_at`, `name`, `-reward`, `state`, `step`.")
    ] = "-created_at",
) -> Page[RunObject] | Response:
    """Runs, the newest first."""
    with services.database.read() as connection:
        found = queries.runs(connection, state=state, search=search, sort=sort, limit=limit + 1, after=after)
        newest = stamps(connection, [run["id"] for run in found])
        in_order = [newest.get(run["id"]) for run in found]
        if (known := cached.unchanged(*in_order, *_jobs(connection, found).items())) is not None:
            return known
        return page(_objects(connection, found), limit)


@router.post("/runs/import")
def import_run(body: ImportRequest, services: Provided) -> RunDetails:
    """Take in a run folder, wherever it lies; importing it again changes nothing. It stays where it is."""
    path = Path(body.path).expanduser()
    if not path.is_absolute() or "\0" in body.path:
        raise InvalidRequest("path has to be absolute", param="path")
    run_id = services.ingester.import_run(path)
    with services.database.read() as connection:
        return _details(services, connection, run_id)


@router.get("/runs/{run_id}", responses=NOT_MODIFIED, response_model=RunDetails)
def get_run(run_id: RunId, services: Provided, cached: Cached) -> RunDetails | Response:
    """A run with configuration, status and metrics, as its folder is at this moment."""
    services.ingester.refresh(run_id)
    with services.database.read() as connection:
        job = _jobs(connection, [{"id": run_id}])
        if (known := cached.unchanged(*stamp(connection, run_id), *job.values())) is not None:
            return known
        return _details(services, connection, run_id)


@router.delete("/runs/{run_id}")
def forget_run(run_id: RunId, services: Provided) -> Deleted:
    """Drop a run from the lists. Its folder stays, and can be imported again."""
    with services.database.read() as connection:
        unfinished = (
            sa.select(tasks.c.id).join_from(tasks, jobs).where(jobs.c.run_id == run_id, tasks.c.status.not_in(ENDED))
        )
        job = connection.scalar(unfinished)
    if job is not None:
        raise Conflict(f"{run_id} belongs to {job}, which is not finished; cancel that one first")
    services.ingester.forget(run_id)
    return Deleted(object="run", id=run_id)


@router.get("/runs/{run_id}/rewards")
def list_reward_code(run_id: RunId, services: Provided) -> Page[RewardCode]:
    """The reward functions of a run with their code, as far as the server can see it."""
    with services.database.read() as connection:
        config = parse_config(queries.run(connection, run_id)["config"])
    found = [
        RewardCode(id=reward.name, weight=reward.weight, source=reward.source, code=_code(services, reward.source))
        for reward in config.rewards
    ]
    return page(found, len(found))


def _code(services: Services, source: str) -> str | None:
    path = services.folder.found(source if source.endswith(".json") else source.rpartition(":")[0])
    try:
        if path.suffix not in (".py", ".json") or path.stat().st_size > _SHOWN_BYTES:
            return None
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None


def _objects(connection: Connection, found: Sequence[Mapping[str, Json]]) -> list[RunObject]:
    job_ids = _jobs(connection, found)
    lines = sparklines(connection, [run["id"] for run in found], SPARKLINE_POINTS)
    return [RunObject(**_fields(connection, run, job_ids.get(run["id"]), lines[run["id"]])) for run in found]


def _details(services: Services, connection: Connection, run_id: str) -> RunDetails:
    run = queries.run(connection, run_id)
    ends = time.time() if run["state"] in (RunState.STARTING, RunState.RUNNING) else run["updated_at"]
    more = {key: run[key] for key in ("config", "facts", "prompts", "rollouts", "failed", "metrics")}
    return RunDetails(
        **_fields(
            connection,
            run,
            _jobs(connection, [run]).get(run_id),
            sparklines(connection, [run_id], SPARKLINE_POINTS)[run_id],
        ),
        **more,
        folder=str(services.ingester.folder(run_id)),
        elapsed_seconds=max(ends - run["created_at"], 0.0),
        summary=summary(StepRecord(run["step"], run["metrics"]["latest"])),
    )


def _fields(
    connection: Connection, run: Mapping[str, Json], job_id: str | None, curve: list[float | None]
) -> dict[str, Any]:
    done, total = run["step"], run["total_steps"]
    active = run["state"] in (RunState.STARTING, RunState.RUNNING)
    speed = progress(connection, run["id"]) if active or (total and total > done) else None
    left = speed.seconds_left if speed else None
    names = ("id", "name", "model", "state", "phase", "message", "step", "total_steps", "reward", "validation_reward")
    return {
        **{name: run[name] for name in names},
        "seconds_left": left if active else None,
        "seconds_per_step": left / (total - done) if left is not None and total and total > done else None,
        "sparkline": curve,
        "job_id": job_id,
        "created_at": int(run["created_at"]),
        "updated_at": int(run["updated_at"]),
    }


def _jobs(connection: Connection, found: Iterable[Mapping[str, Json]]) -> dict[str, str]:
    """The job of each run that has one."""
    query = (
        sa.select(jobs.c.run_id, tasks.c.id)
        .join_from(tasks, jobs)
        .where(jobs.c.run_id.in_([run["id"] for run in found]))
    )
    return dict(connection.execute(query).all())
