"""`/v1/fine_tuning/jobs`"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Annotated

from fastapi import APIRouter, Header, Query
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from strop.api.dependencies import Provided
from strop.api.openai.job_object import (
    CheckpointObject,
    EventObject,
    JobObject,
    checkpoint_objects,
    event_object,
    job_object,
)
from strop.api.paging import After, Limit, Page, page
from strop.errors import NotFound
from strop.http.sse import DONE, STREAMED, EventStream, message
from strop.jobs.job import Job, JobQueue
from strop.jobs.task import TaskStatus, event_seq
from strop.services.job_creation import create_job
from strop.services.job_request import JobRequest

router = APIRouter(prefix="/fine_tuning/jobs")

POLL_S = 0.5
"""Pause between looks for new events of a stream."""
_PORTION = 100


@router.post("")
def create_fine_tuning_job(
    body: JobRequest,
    request: Request,
    services: Provided,
    retries: Annotated[int, Header(alias="x-stainless-retry-count", include_in_schema=False)] = 0,
) -> JobObject:
    """Create a job: it is validated, waits for its turn, and runs."""
    key = getattr(request.state, "key", None)
    return job_object(create_job(body, services, key, retries > 0), services)


@router.get("")
def list_fine_tuning_jobs(
    request: Request,
    services: Provided,
    after: After = None,
    limit: Limit = 20,
    metadata: Annotated[
        str | None, Query(description="`metadata[key]=value` finds jobs by it; `metadata=null` those without any.")
    ] = None,
) -> Page[JobObject]:
    """Jobs, the newest first."""
    wanted = _metadata_filter(request)
    without = metadata == "null"

    def matches(job: Job) -> bool:
        found = job.metadata
        return (not without or found is None) and all((found or {}).get(key) == value for key, value in wanted)

    jobs = find_jobs(services.jobs, matches, after=after, limit=limit + 1)
    return page([job_object(job, services) for job in jobs], limit)


@router.get("/{job_id}")
def retrieve_fine_tuning_job(job_id: str, services: Provided) -> JobObject:
    """One job."""
    return job_object(services.jobs.get(job_id), services)


@router.post("/{job_id}/cancel")
def cancel_fine_tuning_job(job_id: str, services: Provided) -> JobObject:
    """End a job for good. One that trains stays `running`, with `wanted`, until its process has ended."""
    return job_object(services.jobs.request(job_id, "cancel"), services)


@router.post("/{job_id}/pause")
def pause_fine_tuning_job(job_id: str, services: Provided) -> JobObject:
    """Save a checkpoint and stop. One that trains stays `running`, with `wanted`, until that is done."""
    return job_object(services.jobs.request(job_id, "pause"), services)


@router.post("/{job_id}/resume")
def resume_fine_tuning_job(job_id: str, services: Provided) -> JobObject:
    """Go on from the newest checkpoint, at the end of the queue; also for jobs that failed."""
    return job_object(services.jobs.resume(job_id), services)


@router.get("/{job_id}/events", response_model=Page[EventObject], responses=STREAMED)
async def list_fine_tuning_events(
    job_id: str,
    services: Provided,
    after: After = None,
    limit: Limit = 20,
    stream: Annotated[bool, Query(description="Send events as they happen, oldest first, until the end.")] = False,
    last_event_id: Annotated[str | None, Header(description="Of a stream that broke off: go on behind it.")] = None,
) -> Page[EventObject] | Response:
    """What happened to a job, newest first; with `stream`, as server-sent events from the first one on."""
    if stream:
        seen = last_event_id or after
        await run_in_threadpool(services.jobs.get, job_id)
        return EventStream(_follow(services.jobs, job_id, event_seq(seen) if seen else 0))
    before = None if after is None else event_seq(after)
    events = await run_in_threadpool(services.jobs.latest_events, job_id, before, limit + 1)
    return page([event_object(event) for event in events], limit)


@router.get("/{job_id}/checkpoints")
def list_fine_tuning_checkpoints(
    job_id: str, services: Provided, after: After = None, limit: Limit = 10
) -> Page[CheckpointObject]:
    """The models that a job has made so far, the newest first."""
    job = services.jobs.get(job_id)
    with services.database.read() as connection:
        found = checkpoint_objects(connection, job)
    if after is not None:
        place = next((place for place, entry in enumerate(found) if entry.id == after), None)
        if place is None:
            raise NotFound(f"no checkpoint {after!r} of job {job_id}", param="after")
        found = found[place + 1 :]
    return page(found, limit)


def find_jobs(
    queue: JobQueue,
    matches: Callable[[Job], bool],
    *,
    after: str | None,
    limit: int,
    status: Iterable[TaskStatus] = (),
) -> list[Job]:
    """Jobs that match, the newest first, from behind the one with id `after`."""
    found: list[Job] = []
    while len(found) < limit:
        portion = queue.list(limit=_PORTION, after=after, status=status)
        found += [job for job in portion if matches(job)]
        if len(portion) < _PORTION:
            break
        after = portion[-1].id
    return found[:limit]


def _metadata_filter(request: Request) -> list[tuple[str, str]]:
    """Keys and values of `metadata[key]=value`."""
    return [
        (match[1], value)
        for name, value in request.query_params.multi_items()
        if (match := re.fullmatch(r"metadata\[(.*)\]", name))
    ]


async def _follow(queue: JobQueue, job_id: str, after: int) -> AsyncGenerator[bytes]:
    """Events from behind a number, as they come, until the job is finished or deleted."""
    while True:
        try:
            finished = (await run_in_threadpool(queue.get, job_id)).status.finished
            events = await run_in_threadpool(queue.events, job_id, after, _PORTION)
        except NotFound:
            break
        for event in events:
            yield message(event_object(event).model_dump_json(), event.id)
            after = event.seq
        if events:
            continue
        if finished:
            break
        await asyncio.sleep(POLL_S)
    yield DONE
