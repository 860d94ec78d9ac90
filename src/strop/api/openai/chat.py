"""`/v1/chat/completions`: checked here, answered by the model process."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from strop.api.dependencies import Provided
from strop.api.errors import answer, envelope
from strop.api.openai.chat_schema import ChatCompletion
from strop.errors import StropError
from strop.http.sse import DONE, STREAMED, EventStream, message, unless_gone
from strop.serve.bodies import ChatBody, StreamOptions
from strop.types import Json

log = logging.getLogger("strop.api")
router = APIRouter()

_CLIENT_GONE = 499  # for the log only; no client reads it


@router.post("/chat/completions", response_model=ChatCompletion, responses=STREAMED)
async def create_chat_completion(body: ChatBody, request: Request, services: Provided) -> Response:
    """Answer a conversation, at once or, with `stream`, piece by piece."""
    body.check()
    wanted = body.model_dump(exclude_unset=True)
    if not body.stream:
        found = await unless_gone(request, services.deployments.chat(wanted))
        return JSONResponse(found) if found else Response(status_code=_CLIENT_GONE)
    chunks = services.deployments.chat_stream(wanted)
    # An error that comes before the first chunk still has a status of its own.
    first = await unless_gone(request, _first(chunks))
    if first is None:
        await chunks.aclose()
        return Response(status_code=_CLIENT_GONE)
    return EventStream(_messages(first, chunks, body.stream_options or StreamOptions()))


async def _first(chunks: AsyncGenerator[dict[str, Json]]) -> dict[str, Json]:
    return await anext(chunks)


async def _messages(
    first: dict[str, Json], chunks: AsyncGenerator[dict[str, Json]], options: StreamOptions
) -> AsyncGenerator[bytes]:
    usage, continuous = bool(options.include_usage), bool(options.continuous_usage_stats)
    async with aclosing(chunks):
        try:
            yield _message(first, usage, continuous)
            async for chunk in chunks:
                if usage or chunk["choices"]:
                    yield _message(chunk, usage, continuous)
        except StropError as error:
            yield message(bytes(answer(error).body).decode())
        except Exception:
            log.exception("%s: the stream broke off", first["id"])
            failure = envelope(500, "the server failed on this request; its log has the reason", "internal_error")
            yield message(bytes(failure.body).decode())
        else:
            yield DONE


def _message(chunk: dict[str, Any], usage: bool, continuous: bool) -> bytes:
    """With `include_usage` every chunk has the key: null in all but the last, unless it is continuous."""
    shown = {key: value for key, value in chunk.items() if key != "usage"}
    if usage:
        shown["usage"] = chunk["usage"] if continuous or not chunk["choices"] else None
    return message(json.dumps(shown, ensure_ascii=False))
