"""`/v1/strop/runs/{id}/logs`: what a run says, page by page and as it is written."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query
from fastapi.sse import format_sse_event
from starlette.concurrency import run_in_threadpool

from strop.api.answers import Answer, RunId
from strop.api.dependencies import Provided
from strop.http.sse import STREAMED, EventStream
from strop.services.container import Services
from strop.store.logfile import Level, LogFile, LogFilter, LogPage
from strop.store.rundir import RunDir

router = APIRouter()

POLL_S = 0.5
MAX_OFFSET = 2**53
"""Every JSON reader knows integers up to here."""

Log = Annotated[
    Literal["training", "output"],
    Query(description="training.log, a line a step; or raw_output.log, all output of the process."),
]
Least = Annotated[Level, Query(description="The least level that counts, as far as words tell.")]
Text = Annotated[str, Query(description="Part of a line, in any case.")]
Offset = Annotated[int | None, Query(ge=0, le=MAX_OFFSET)]


class LogLineObject(Answer):
    """One line, without escape sequences."""

    offset: int
    """Byte that it starts at, which names it: a line that comes again replaces itself."""
    level: Level
    text: str


class LogObject(Answer):
    """Lines in a row."""

    object: Literal["run.log"] = "run.log"
    run_id: str
    data: list[LogLineObject]
    start: int
    """`before` of the page with older lines."""
    end: int
    """`after` of the stream that goes on from here."""
    has_more: bool
    """Whether there are older lines. With a filter, a page may be empty and there still be more."""
    bytes: int
    """Size of the file."""


@router.get("/runs/{run_id}/logs")
def read_log(
    run_id: RunId,
    services: Provided,
    log: Log = "training",
    lines: Annotated[int, Query(ge=1, le=5000)] = 200,
    before: Annotated[int | None, Query(ge=0, le=MAX_OFFSET, description="`start` of the page behind it.")] = None,
    level: Least = "debug",
    search: Text = "",
) -> LogObject:
    """The last lines of a log, or those before a place in it."""
    found = LogFile(_path(services, run_id, log)).before(before, lines, LogFilter(level, search))
    return LogObject(
        run_id=run_id,
        data=[LogLineObject(**vars(line)) for line in found.lines],
        start=found.start,
        end=found.end,
        has_more=found.start > 0,
        bytes=found.size,
    )


@router.get("/runs/{run_id}/logs/stream", response_class=EventStream, responses=STREAMED)
async def follow_log(
    run_id: RunId,
    services: Provided,
    log: Log = "training",
    after: Annotated[
        int | None, Query(ge=0, le=MAX_OFFSET, description="Send what follows this byte; by default what is new.")
    ] = None,
    level: Least = "debug",
    search: Text = "",
    last_event_id: Annotated[str | None, Header(description="What browsers send to resume; wins over `after`.")] = None,
) -> EventStream:
    """Follow a log by server-sent events: `lines` with the lines, `reset` when the file starts over."""
    file = LogFile(await run_in_threadpool(_path, services, run_id, log))
    known = (last_event_id or "").strip()
    place = min(int(known), MAX_OFFSET) if known.isascii() and known.isdecimal() else after
    if place is None:  # the end as it is now, before the client learns that the stream has begun
        place = (await run_in_threadpool(file.before, None, 1, LogFilter())).end
    return EventStream(_follow(file, place, LogFilter(level, search)))


async def _follow(log: LogFile, place: int, wanted: LogFilter) -> AsyncGenerator[bytes]:
    while True:
        page = await run_in_threadpool(log.after, place, wanted)
        if page.start < place:
            yield _event("reset", {"bytes": page.size}, page.start)
        if page.lines:
            yield _event("lines", _data(page), page.end)
        waiting = page.end == place
        place = page.end
        if waiting:
            await asyncio.sleep(POLL_S)


def _data(page: LogPage) -> Mapping[str, Any]:
    return {"data": [vars(line) for line in page.lines], "end": page.end}


def _event(kind: str, data: Mapping[str, Any], place: int) -> bytes:
    return format_sse_event(data_str=json.dumps(data, ensure_ascii=False), event=kind, id=str(place))


def _path(services: Services, run_id: str, log: str) -> Path:
    run = RunDir(services.ingester.folder(run_id))
    return run.training_log if log == "training" else run.raw_output
