"""`/v1/strop/runs/{id}/stream`: a run as it goes on, by server-sent events.

    status       {state, phase, message, step, total_steps, seconds_left}, whenever it changes
    step         one step with its metrics; its number is the id to resume from
    checkpoints  the checkpoints there are now
    reset        steps were taken back, since the run was resumed: request the curves again
    deleted      the run is gone, and this was the last event

A stream begins with the status, the checkpoints, and the steps after the one that was named.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import APIRouter, Header, Query
from fastapi.sse import format_sse_event
from sqlalchemy import Connection
from starlette.concurrency import run_in_threadpool

from strop.api.answers import MAX_INT, RunId
from strop.api.dependencies import Provided
from strop.errors import NotFound
from strop.http.sse import STREAMED, EventStream
from strop.services.container import Services
from strop.store import queries
from strop.store.queries.live import metrics_file, newest_step, stamp, status, steps_after
from strop.store.queries.progress import progress
from strop.types import Json

router = APIRouter()

POLL_S = 0.5
"""Pause between looks at a run."""
_PORTION = 100


@router.get("/runs/{run_id}/stream", response_class=EventStream, responses=STREAMED)
async def stream_run(
    run_id: RunId,
    services: Provided,
    after: Annotated[
        int | None, Query(ge=-1, le=MAX_INT, description="Send steps after this one; by default new ones only.")
    ] = None,
    last_event_id: Annotated[str | None, Header(description="What browsers send to resume; wins over `after`.")] = None,
) -> EventStream:
    """Follow a run: its status, new steps and checkpoints. Never ends by itself while the run is there."""
    follower = await run_in_threadpool(_Follower.start, services, run_id, _resumed(last_event_id, after))
    return EventStream(_follow(follower))


def _resumed(last_event_id: str | None, after: int | None) -> int | None:
    known = (last_event_id or "").strip()
    return min(int(known), MAX_INT) if known.isascii() and known.isdecimal() else after


async def _follow(follower: _Follower) -> AsyncGenerator[bytes]:
    while True:
        try:
            events, more = await run_in_threadpool(follower.look)
        except NotFound:
            yield _event("deleted", {"id": follower.run_id})
            return
        for event in events:
            yield event
        if not more:
            await asyncio.sleep(POLL_S)


@dataclass
class _Follower:
    """The state already sent to one client."""

    services: Services
    run_id: str
    step: int
    """The newest step that was sent."""
    seen: tuple[Json, ...] = ()
    known_status: Mapping[str, Json] = field(default_factory=dict)
    known_checkpoints: list[dict[str, Json]] | None = None
    inode: Json = None

    @classmethod
    def start(cls, services: Services, run_id: str, after: int | None) -> _Follower:
        """NotFound for an unknown run."""
        services.ingester.refresh(run_id)
        with services.database.read() as connection:
            newest = newest_step(connection, run_id)
        return cls(services, run_id, after if after is not None else -1 if newest is None else newest)

    def look(self) -> tuple[list[bytes], bool]:
        """What is new, and whether there is more of it at once."""
        self.services.ingester.refresh(self.run_id)
        with self.services.database.read() as connection:
            now = stamp(connection, self.run_id)
            if now == self.seen:
                return [], False
            events = [*self._status(connection), *self._checkpoints(connection), *self._reset(connection)]
            steps = steps_after(connection, self.run_id, self.step, _PORTION)
        for step in steps:
            self.step = step["step"]
            events.append(_event("step", step, str(self.step)))
        more = len(steps) == _PORTION
        self.seen = () if more else now
        return events, more

    def _status(self, connection: Connection) -> list[bytes]:
        speed = progress(connection, self.run_id)
        found = {**status(connection, self.run_id), "seconds_left": speed.seconds_left if speed else None}
        changed = found != self.known_status
        self.known_status = found
        return [_event("status", found)] if changed else []

    def _checkpoints(self, connection: Connection) -> list[bytes]:
        names = ("id", "step", "bytes", "validation_reward", "state", "latest", "best")
        found = [{name: entry[name] for name in names} for entry in queries.checkpoints(connection, self.run_id)]
        changed = found != self.known_checkpoints
        self.known_checkpoints = found
        return [_event("checkpoints", {"data": found})] if changed else []

    def _reset(self, connection: Connection) -> list[bytes]:
        """Whether sent steps were removed: metrics.jsonl was replaced or is shorter."""
        newest = newest_step(connection, self.run_id)
        inode = metrics_file(connection, self.run_id)
        known, self.inode = self.inode, inode
        if (newest is None or newest >= self.step) and (known is None or known == inode):
            return []
        self.step = -1 if newest is None else newest
        return [_event("reset", {"newest_step": newest})]


def _event(kind: str, data: Mapping[str, Json], event_id: str | None = None) -> bytes:
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return format_sse_event(data_str=text, event=kind, id=event_id)
