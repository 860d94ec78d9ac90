"""The HTTP interface of a model process: OpenAI's completions, vLLM's adapters, strop's loading.

Routes of strop's own lie under `/v1/strop`. Errors come in OpenAI's form. A client that
disconnects cancels its request.
"""

from __future__ import annotations

import asyncio
import json
import traceback
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from strop.errors import InvalidRequest, ModelError, NotFound, StropError
from strop.http.errors import body_of, error_body, headers_of, invalid_body, status_of
from strop.http.sse import DONE, EventStream, message, unless_gone
from strop.policy.weights import base_of
from strop.serve.answers import Answer, TextAnswer
from strop.serve.bodies import (
    ChatBody,
    CompletionBody,
    LoadAdapterBody,
    LoadBody,
    SamplingBody,
    UnloadAdapterBody,
    UnloadBody,
)
from strop.serve.generate import Event, GenerateRequest
from strop.serve.state import EngineState, ModelState

_CLIENT_GONE = 499


class Host(Protocol):
    """What answers: `serve.engine.ModelHost`."""

    async def load(self, name: str, source: str) -> ModelState:
        """Have a model under a name."""

    async def unload(self, name: str) -> None:
        """Forget it."""

    def state(self) -> EngineState:
        """What is loaded."""

    def generate(self, request: GenerateRequest) -> AsyncGenerator[Event]:
        """Answer a request."""


def create_app(host: Host) -> FastAPI:
    """The application over the models of a host."""
    app = FastAPI(title="strop model process", openapi_url=None)
    app.add_exception_handler(StropError, _on_strop_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(Exception, _on_defect)

    @app.post("/v1/chat/completions")
    async def create_chat_completion(body: ChatBody, request: Request) -> Response:
        return await _answered(host, request, body, Answer)

    @app.post("/v1/completions")
    async def create_completion(body: CompletionBody, request: Request) -> Response:
        return await _answered(host, request, body, TextAnswer)

    @app.get("/health")
    async def health() -> Response:
        return Response()

    @app.get("/v1/models")
    async def list_models() -> dict[str, Any]:
        models = [
            {
                "id": model.name,
                "object": "model",
                "created": 0,
                "owned_by": "strop",
                "root": model.source,
                "parent": model.base,
                "max_model_len": model.max_length,
            }
            for model in host.state().models
        ]
        return {"object": "list", "data": models}

    @app.get("/v1/strop/state")
    async def state() -> dict[str, Any]:
        return asdict(host.state())

    @app.post("/v1/strop/load")
    async def load(body: LoadBody) -> dict[str, Any]:
        return asdict(await _whole(host.load(body.name, body.source)))

    @app.post("/v1/strop/unload")
    async def unload(body: UnloadBody) -> dict[str, Any]:
        await _whole(host.unload(body.name))
        return {}

    @app.post("/v1/load_lora_adapter")
    async def load_adapter(body: LoadAdapterBody) -> dict[str, Any]:
        if base_of(Path(body.lora_path)) is None:
            raise InvalidRequest(f"{body.lora_path}: no adapter there", param="lora_path")
        if body.load_inplace:
            await _whole(host.unload(body.lora_name))
        return asdict(await _whole(host.load(body.lora_name, body.lora_path)))

    @app.post("/v1/unload_lora_adapter")
    async def unload_adapter(body: UnloadAdapterBody) -> dict[str, Any]:
        if all(model.name != body.lora_name for model in host.state().models):
            raise NotFound(f"{body.lora_name} is not loaded", param="lora_name")
        await _whole(host.unload(body.lora_name))
        return {}

    return app


async def _whole(work: Any) -> Any:
    """A client that goes away must not leave a model half loaded."""
    return await asyncio.shield(asyncio.create_task(work))


async def _answered(host: Host, request: Request, body: ChatBody | CompletionBody, shape: type[Answer]) -> Response:
    wanted = body.request()
    events = host.generate(wanted)
    answer = shape(wanted, *_usage(body))
    if not body.stream:
        async with aclosing(events):
            found = await unless_gone(request, answer.whole(events))
        return JSONResponse(found) if found else Response(status_code=_CLIENT_GONE)
    # An error before the first event still has a status of its own.
    first = await unless_gone(request, _first(events))
    if first is None:
        await events.aclose()
        return Response(status_code=_CLIENT_GONE)
    return EventStream(_messages(first, events, answer))


async def _first(events: AsyncGenerator[Event]) -> Event:
    return await anext(events)


def _usage(body: SamplingBody) -> tuple[bool, bool]:
    options = body.stream_options
    return bool(options and options.include_usage), bool(options and options.continuous_usage_stats)


async def _messages(first: Event, events: AsyncGenerator[Event], answer: Answer) -> AsyncGenerator[bytes]:
    async with aclosing(events):
        try:
            for chunk in answer.chunks(first):
                yield _message(chunk)
            async for event in events:
                for chunk in answer.chunks(event):
                    yield _message(chunk)
        except StropError as error:
            yield _message(body_of(error))
        except Exception as error:
            traceback.print_exception(error)
            yield _message(_defect(error))
        else:
            yield DONE


def _message(body: dict[str, Any]) -> bytes:
    return message(json.dumps(body, ensure_ascii=False))


def _defect(error: Exception) -> dict[str, Any]:
    return error_body(500, f"{type(error).__name__}: {error}", ModelError.code)


async def _on_strop_error(request: Request, error: Any) -> JSONResponse:
    return JSONResponse(body_of(error), status_of(error), headers_of(error))


async def _on_invalid(request: Request, error: Any) -> JSONResponse:
    return JSONResponse(invalid_body(error.errors()), 400)


async def _on_defect(request: Request, error: Exception) -> JSONResponse:
    return JSONResponse(_defect(error), 500)
