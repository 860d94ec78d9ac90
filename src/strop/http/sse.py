"""Server-sent events, and clients that go away in the middle."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing
from typing import Any, TypeVar

from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Send

PING_S = 15.0
"""Silence after which a comment tells proxies that the connection is alive."""
DONE = format_sse_event(data_str="[DONE]")
"""The last message of OpenAI's streams."""

_EVENT = {"type": "object", "properties": {name: {"type": "string"} for name in ("data", "event", "id")}}
STREAMED: dict[int | str, dict[str, Any]] = {200: {"content": {"text/event-stream": {"schema": _EVENT}}}}
"""For `responses` of routes that may answer with a stream."""

Result = TypeVar("Result")


def message(data: str, event_id: str | None = None) -> bytes:
    """One event on the wire."""
    return format_sse_event(data_str=data, id=event_id)


class EventStream(StreamingResponse):
    """A stream of messages. Its source is closed at once when the client goes away."""

    media_type = "text/event-stream"

    def __init__(self, source: AsyncGenerator[bytes], status_code: int = 200) -> None:
        """The description of the API takes the status from the default."""
        self._source = source
        super().__init__(self._pinged(), status_code)

    async def stream_response(self, send: Send) -> None:
        """Send the messages, and whatever happens then close their source."""
        async with aclosing(self._source):
            await super().stream_response(send)

    async def _pinged(self) -> AsyncGenerator[bytes]:
        """The messages, with comments in long pauses."""
        waiting: asyncio.Task[bytes] | None = None
        try:
            while True:
                waiting = waiting or asyncio.create_task(_next(self._source))
                done, _ = await asyncio.wait({waiting}, timeout=PING_S)
                if not done:
                    yield KEEPALIVE_COMMENT
                    continue
                task, waiting = waiting, None
                try:
                    found = task.result()
                except StopAsyncIteration:
                    return
                yield found
        finally:
            if waiting is not None:
                waiting.cancel()
                await asyncio.gather(waiting, return_exceptions=True)


async def _next(source: AsyncGenerator[bytes]) -> bytes:
    return await anext(source)


async def unless_gone(request: Request, work: Coroutine[Any, Any, Result]) -> Result | None:
    """What `work` returns; None, with the work cancelled, where the client goes away before that.

    For routes that have read their body.
    """
    task, gone = asyncio.create_task(work), asyncio.create_task(_gone(request))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        return await task if task.done() else None
    finally:
        for each in (task, gone):
            each.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
