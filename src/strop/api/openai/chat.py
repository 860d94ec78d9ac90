"""`/v1/chat/completions`"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from strop.api.dependencies import Provided
from strop.api.errors import answer, envelope
from strop.api.openai.chat_answer import ChatCompletion, Head, opening, piece, whole
from strop.api.openai.chat_request import ChatBody, wire_request
from strop.errors import StropError
from strop.http.sse import DONE, STREAMED, EventStream, message, unless_gone
from strop.serve.wire import Event

log = logging.getLogger("strop.api")
router = APIRouter()

_CLIENT_GONE = 499  # nobody reads it; what the log says


@router.post("/chat/completions", response_model=ChatCompletion, responses=STREAMED)
async def create_chat_completion(body: ChatBody, request: Request, services: Provided) -> ChatCompletion | Response:
    """Answer a conversation, at once or, with `stream`, piece by piece."""
    head = Head(f"chatcmpl-{secrets.token_hex(12)}", int(time.time()), body.model)
    wanted = wire_request(body, head.id)
    events = services.deployments.generate(wanted)
    if not body.stream:
        async with aclosing(events):
            found = await unless_gone(request, whole(events, head, wanted.n, wanted.logprobs))
        return found or Response(status_code=_CLIENT_GONE)
    # An error that comes before the first piece still has a status of its own.
    first = await unless_gone(request, _first(events))
    if first is None:
        await events.aclose()
        return Response(status_code=_CLIENT_GONE)
    usage = bool(body.stream_options and body.stream_options.include_usage)
    return EventStream(_messages(first, events, head, wanted.n, wanted.logprobs, usage))


async def _first(events: AsyncGenerator[Event]) -> Event:
    return await anext(events)


async def _messages(
    first: Event, events: AsyncGenerator[Event], head: Head, count: int, logprobs: bool, usage: bool
) -> AsyncGenerator[bytes]:
    async with aclosing(events):
        for text in opening(head, count, usage):
            yield message(text)
        try:
            async for event in _chained(first, events):
                chunk = piece(event, head, logprobs, usage)
                if chunk is not None:
                    yield message(chunk)
        except StropError as error:
            yield message(bytes(answer(error).body).decode())
        except Exception:
            log.exception("%s: the stream broke off", head.id)
            failure = envelope(500, "the server failed on this request; its log has the reason", "internal_error")
            yield message(bytes(failure.body).decode())
        else:
            yield DONE


async def _chained(first: Event, events: AsyncGenerator[Event]) -> AsyncGenerator[Event]:
    yield first
    async for event in events:
        yield event
