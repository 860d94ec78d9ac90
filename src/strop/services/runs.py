"""What pages ask about runs: their curves, their checkpoints and where they stand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from strop.errors import NotFound, StropError
from strop.jobs.job import Job
from strop.services.container import Services
from strop.services.threads import in_thread
from strop.store import queries
from strop.store.checkpoints import read_checkpoint
from strop.store.queries.live import Stamp, stamp
from strop.store.queries.progress import progress
from strop.store.recorder import summary
from strop.store.rundir import RunState
from strop.types import Json, StepRecord

RUN_STATES: Sequence[str] = tuple(RunState)
_OPEN = (RunState.STARTING, RunState.RUNNING, "queued", "validating_files")


@dataclass(frozen=True)
class Experiment:
    """A job with its run; one of them may be missing."""

    job: Job | None
    run_id: str | None
    run: Mapping[str, Any]
    """As `queries.run` gives it; empty before the run exists."""
    position: int | None
    """In the queue, 1 for the next to run; None for one that does not wait."""
    seconds_left: float | None
    """At the speed of the newest steps; None where that is not known."""
    folder: str
    """Folder of the run on the server; empty before the run exists."""

    @property
    def name(self) -> str:
        """For people."""
        return self.job.name if self.job else str(self.run["name"])

    @property
    def state(self) -> str:
        """Of the job, else of the run."""
        return str(self.job.status) if self.job else str(self.run["state"])

    @property
    def active(self) -> bool:
        """Whether new steps may come."""
        return self.state in _OPEN

    @property
    def summary(self) -> str:
        """The newest values in the form of training.log; empty before the first step."""
        latest = self.run.get("metrics", {}).get("latest", {})
        return summary(StepRecord(self.run["step"], latest)) if latest else ""


@dataclass(frozen=True)
class SavedCheckpoint:
    """A checkpoint of a run with its files."""

    id: str
    step: int
    bytes: int
    validation_reward: float | None
    best: bool
    latest: bool
    created_at: float
    files: Mapping[str, int]
    """Size of each file by name; empty where its manifest cannot be read."""


@dataclass(frozen=True)
class RewardSource:
    """A reward function of a run, as its file is now."""

    name: str
    source: str
    """Its code, or why it cannot be read."""


@in_thread
def find(services: Services, name: str) -> Experiment:
    """By the id of a job or of a run. NotFound for neither."""
    job = None if name.startswith("run_") else services.jobs.get(name)
    run_id = name if job is None else job.run_id
    run: Mapping[str, Any] = {}
    seconds = None
    if run_id is not None:
        try:
            with services.database.read() as connection:
                run = queries.run(connection, run_id)
                pace = progress(connection, run_id)
                seconds = pace.seconds_left if pace else None
        except NotFound:
            if job is None:
                raise
            run_id = None  # its folder is made, and not yet taken in
    return Experiment(
        job=job,
        run_id=run_id,
        run=run,
        position=services.jobs.position(job) if job else None,
        seconds_left=seconds,
        folder=str(services.ingester.folder(run_id)) if run_id else "",
    )


@in_thread
def fresh_stamp(services: Services, run_id: str) -> Stamp:
    """Take in what the run's folder holds; what changes whenever anything of the run does."""
    services.ingester.refresh(run_id)
    with services.database.read() as connection:
        return stamp(connection, run_id)


@in_thread
def name_of(services: Services, run_id: str) -> str:
    """What a run is called. NotFound for an unknown one."""
    with services.database.read() as connection:
        return str(queries.run(connection, run_id)["name"])


@in_thread
def reward_components(services: Services, run_ids: Sequence[str]) -> list[str]:
    """Names of the components that the rewards of some runs have had."""
    with services.database.read() as connection:
        names = [name for run_id in run_ids for name in queries.metric_names(connection, run_id)]
    return list(dict.fromkeys(name.removeprefix("reward/") for name in names if name.startswith("reward/")))


@in_thread
def curves(
    services: Services, run_id: str, names: Sequence[str], first: int | None = None, last: int | None = None
) -> dict[str, Json]:
    """Metrics by step, each with `steps` and `values`."""
    with services.database.read() as connection:
        return queries.series(connection, run_id, list(names), first=first, last=last)


@in_thread
def checkpoints(services: Services, run_id: str) -> list[SavedCheckpoint]:
    """The checkpoints of a run with their files, the newest first."""
    with services.database.read() as connection:
        found = queries.checkpoints(connection, run_id)
    folder = services.ingester.folder(run_id)
    names = ("id", "step", "bytes", "validation_reward", "best", "latest", "created_at")
    return [
        SavedCheckpoint(**{name: entry[name] for name in names}, files=_files(folder / entry["path"]))
        for entry in reversed(found)
    ]


@in_thread
def reward_sources(services: Services, run: Mapping[str, Any]) -> list[RewardSource]:
    """The reward functions of a run with their code, for people."""
    return [_reward_source(services, reward["name"], str(reward["source"])) for reward in run["config"]["rewards"]]


def _reward_source(services: Services, name: str, source: str) -> RewardSource:
    path = services.folder.found(source if source.endswith(".json") else source.rpartition(":")[0])
    try:
        return RewardSource(name, path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        return RewardSource(name, f"{path} cannot be read: {error}")


def _files(folder: Any) -> Mapping[str, int]:
    try:
        return {name: file["size"] for name, file in read_checkpoint(folder).files.items()}
    except StropError:
        return {}


@in_thread
def dataset_names(services: Services, data: Mapping[str, str | None]) -> dict[str, str]:
    """What a person called the files of a `[data]` table, by key; the path of one that was not uploaded."""
    found = {}
    for key, path in data.items():
        if isinstance(path, str):
            found[key] = path
            with suppress(NotFound):
                found[key] = services.files.get(Path(path).name).filename
    return found
