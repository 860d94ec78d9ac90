"""A job as a client asks for it, as the database holds it, and the events of its life."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from strop.config import RunConfig, parse_config
from strop.errors import NotFound
from strop.jobs.states import JobStatus
from strop.types import Json

Level = Literal["info", "warn", "error"]
Wanted = Literal["pause", "cancel"]


@dataclass(frozen=True)
class NewJob:
    """What a client asks for."""

    name: str
    model: str
    """As the client named it; `config.model` is what is loaded."""
    config: RunConfig
    """Paths may be relative to the data folder: then the folder may move."""
    request: Mapping[str, Json] = field(default_factory=dict)
    """What the client sent, echoed in answers; `suffix` and `metadata` are read from it."""
    training_file: str | None = None
    validation_file: str | None = None
    forked_from: str | None = None
    """Id of the checkpoint that training goes on from."""


@dataclass(frozen=True)
class Job:
    """A row of the jobs table at one moment. Times are seconds since 1970."""

    seq: int
    id: str
    created_at: float
    name: str
    status: JobStatus
    wanted: Wanted | None
    """What was asked for and is not done yet."""
    reason: str | None
    """Why it waits, was restarted, paused or failed, and what to do: for people."""
    error_code: str | None
    error_param: str | None
    model: str
    config_json: str
    request: Mapping[str, Json]
    training_file: str | None
    validation_file: str | None
    fine_tuned_model: str | None
    forked_from: str | None
    run_id: str | None
    folder: str
    """Run folder, relative to the data folder."""
    queued_seq: int
    started_at: float | None
    """When a process first trained it."""
    finished_at: float | None
    restarts: int
    """Automatic ones since the newest checkpoint."""
    token: int
    lease_owner: str | None
    lease_expires_at: float | None
    pid: int | None
    pid_started_at: float | None

    @cached_property
    def config(self) -> RunConfig:
        """The configuration, parsed when it is first asked for."""
        return parse_config(json.loads(self.config_json), f"job {self.id}")

    def changed(self, changes: Mapping[str, Any]) -> RunConfig:
        """The configuration with changes: `{"train": {"learning_rate": 1e-5}}` changes one value.

        Lists are replaced as a whole. ConfigError where the result cannot be run.
        """
        return parse_config(_merged(json.loads(self.config_json), changes), f"job {self.id}, changed")

    @property
    def suffix(self) -> str | None:
        """What the client wants in the name of the model."""
        return self.request.get("suffix")

    @property
    def metadata(self) -> Mapping[str, str] | None:
        """The client's own key-value pairs."""
        return self.request.get("metadata")

    @property
    def model_name(self) -> str:
        """What the trained model is, or will be, called: `ft:<base>:strop:<suffix>:<8 hex>`.

        Checkpoints append `:ckpt-step-<N>`. A base that is a fine-tuned model itself gives its own base.
        """
        parts = self.model.split(":")
        base = parts[1] if parts[0] == "ft" and len(parts) > 1 else self.model
        base = base.rstrip("/").rpartition("/")[2]
        return f"ft:{_plain(base)}:strop:{_plain(self.suffix or '')}:{short_id(self.id)}"

    @property
    def error(self) -> dict[str, Json] | None:
        """Why it failed, in OpenAI's form; None unless it did."""
        if self.status is not JobStatus.FAILED:
            return None
        return {"code": self.error_code, "message": self.reason, "param": self.error_param}


@dataclass(frozen=True)
class NewEvent:
    """Something to tell about a job."""

    message: str
    level: Level = "info"
    type: Literal["message", "metrics"] = "message"
    data: Mapping[str, Json] | None = None
    once: str | None = None
    """A second event of the same job with this key is not recorded."""


@dataclass(frozen=True)
class Event:
    """An event as it was recorded."""

    seq: int
    created_at: float
    level: Level
    type: Literal["message", "metrics"]
    message: str
    data: Mapping[str, Json] | None

    @property
    def id(self) -> str:
        """What clients see: the number of the event."""
        return f"ftevent-{self.seq:024x}"


def event_seq(event_id: str) -> int:
    """The number in the id of an event. NotFound for what is no such id."""
    match = re.fullmatch(r"ftevent-([0-9a-f]{24})", event_id)
    if match is None:
        raise NotFound(f"no event {event_id!r}")
    return int(match[1], 16)


def _plain(text: str) -> str:
    """What a part of a model's name may hold: no slash, no colon, no space."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-")


def short_id(job_id: str) -> str:
    """The first 8 digits of a job's id: no two jobs of a server have the same ones."""
    return job_id.removeprefix("ftjob-")[:8]


def clone(job: Job, changes: Mapping[str, Any] | None = None, name: str | None = None) -> NewJob:
    """The same job once more, from the start, with changes to the tables of its configuration.

    ConfigError where the result cannot be run. The request is the old one: the caller replaces
    what it changes there.
    """
    return NewJob(
        name=name or job.name,
        model=job.model,
        config=job.changed(changes or {}),
        request=job.request,
        training_file=job.training_file,
        validation_file=job.validation_file,
        forked_from=job.forked_from,
    )


def _merged(tables: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Nested tables with changes on top; whatever is no table is replaced as a whole."""
    result = dict(tables)
    for key, value in changes.items():
        known = result.get(key)
        both = isinstance(value, Mapping) and isinstance(known, Mapping)
        result[key] = _merged(known, value) if both else value  # type: ignore[arg-type]
    return result
