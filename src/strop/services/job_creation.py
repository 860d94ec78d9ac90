"""Creating jobs: from a request to a row in the queue, once for each request."""

from __future__ import annotations

import importlib.util
import json
import os
import secrets
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from strop.config import RunConfig
from strop.errors import InvalidRequest
from strop.http.errors import param_of
from strop.jobs.job import Job, NewJob
from strop.jobs.kept_weights import keep_weights
from strop.jobs.task import NewEvent
from strop.services.container import Services
from strop.services.job_order import Order, translate
from strop.services.job_request import JobRequest
from strop.services.server_library import ServerLibrary
from strop.store.files import write_atomic
from strop.types import Json

PRIVATE = "_"
"""Begins the keys of `Job.request` that are not the client's."""
KEY = f"{PRIVATE}key"
"""In `Job.request`: name of the key that the request came with."""
_REPEATED_S = 600.0
"""Time within which a repeated request is the same one: as long as OpenAI's client waits for an answer."""
_RECENT = 20

_one_at_a_time = threading.Lock()


def create_job(request: JobRequest, services: Services, key: str | None, repeated: bool) -> Job:
    """Create a job; with `repeated`, the one that the same request has made just now, if it has.

    OpenAI's client repeats a request, with a header that says so, when it got no answer.
    """
    try:
        body = {**request.model_dump(mode="json", exclude_unset=True), KEY: key}
    except ValueError as error:  # what no grader is like
        raise InvalidRequest(f"the request is nested too deep: {error}") from None
    with _one_at_a_time:
        earlier = _earlier(body, services) if repeated else None
        return earlier or _create(request, body, services)


def changed(job: Job, changes: Mapping[str, Any]) -> JobRequest:
    """The request that made a job, with changes merged in; of the same seed unless that is among them."""
    tables = _merged({**sent(job), "seed": job.config.seed}, changes)
    try:
        return JobRequest.model_validate(tables)
    except ValidationError as error:
        fault = error.errors()[0]
        unknown = (fault["ctx"]["key"],) if fault["type"] == "unknown_key" else ()
        param = param_of(("changes", *fault["loc"], *unknown))
        raise InvalidRequest(f"{param}: {fault['msg']}", param=param) from None


def sent(job: Job) -> dict[str, Json]:
    """The request that made a job, as the client sent it."""
    return {key: value for key, value in job.request.items() if not key.startswith(PRIVATE)}


def _merged(tables: Mapping[str, Json], changes: Mapping[str, Json]) -> dict[str, Json]:
    """Nested objects with changes on top; whatever is no object is replaced as a whole."""
    result = dict(tables)
    for key, value in changes.items():
        old = result.get(key)
        result[key] = _merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return result


def _create(request: JobRequest, body: Mapping[str, Json], services: Services) -> Job:
    order = translate(request, secrets.randbelow(2**31), ServerLibrary(services))
    for recorder in order.config.recorders:
        _need_recorder(recorder)
    write_files(order, services)
    job = services.jobs.create(
        NewJob(
            name=order.config.name,
            model=order.model.name,
            config=_with_kept_weights(order, services),
            request=body,
            training_file=request.training_file,
            validation_file=request.validation_file,
            forked_from=order.model.checkpoint,
        )
    )
    for number, note in enumerate(order.notes):
        services.jobs.event(job.id, NewEvent(note, level="warn", once=f"note:{number}"))
    return job


def _with_kept_weights(order: Order, services: Services) -> RunConfig:
    """The configuration, with a checkpoint to start from that stays whatever becomes of its run."""
    if order.model.checkpoint is None:
        return order.config
    place = services.folder.path / "forks" / order.model.checkpoint
    kept = keep_weights(Path(order.config.model), place)
    return order.config.model_copy(update={"model": services.folder.stored(kept)})


def _earlier(body: Mapping[str, Json], services: Services) -> Job | None:
    """A job of the same request that is a few minutes old at most."""
    now = time.time()
    return next(
        (
            job
            for job in services.jobs.list(limit=_RECENT)
            if now - job.created_at < _REPEATED_S and job.request == json.loads(json.dumps(body))
        ),
        None,
    )


def _need_recorder(name: str) -> None:
    if importlib.util.find_spec(name) is None:
        raise InvalidRequest(
            f'{name} is not installed on the server; install it with: pip install "strop[{name}]"', param="integrations"
        )


def write_files(order: Order, services: Services) -> None:
    """Put the files of graders and reward functions in their place, where they are not there yet."""
    for stored, text in order.files.items():
        path = services.folder.found(stored)
        if not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomic(path, text)
            os.chmod(path, 0o600)
