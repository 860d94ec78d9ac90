"""Errors as clients see them: `{"error": {"message", "type", "param", "code"}}`, and a status.

OpenAI's client tries again after 408, 409, 429 and 5xx, unless a header tells it not to.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from sqlalchemy.exc import DataError, OperationalError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.routing import Match, Mount

from strop import errors
from strop.errors import StropError
from strop.http.errors import body_of, error_body, headers_of, invalid_body, status_of

log = logging.getLogger("strop.api")

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
CATCH_ALL = "unknown"
"""Name of the route for every path under /v1 that has no other."""


class ErrorObject(BaseModel):
    """What went wrong."""

    message: str
    """For people: the thing, what was found, and what to do."""
    type: str
    """Kind of error, by status."""
    param: str | None
    """The field that is at fault."""
    code: str | None
    """For programs."""


class ErrorBody(BaseModel):
    """The body of every answer that is an error."""

    error: ErrorObject


def install(app: FastAPI) -> None:
    """Let the app answer every exception with an envelope."""
    for kind, handler in _HANDLERS.items():
        app.add_exception_handler(kind, handler)


async def respond(request: Request, error: Exception) -> JSONResponse:
    """The answer to an exception, whatever it is."""
    handler = next((handler for kind, handler in _HANDLERS.items() if isinstance(error, kind)), _on_defect)
    return await handler(request, error)


def envelope(
    status: int, message: str, code: str, param: str | None = None, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """An answer with an error in it."""
    return JSONResponse(error_body(status, message, code, param), status, headers)


def answer(error: StropError) -> JSONResponse:
    """What a client gets to see of one of our errors."""
    return JSONResponse(body_of(error), status_of(error), headers_of(error))


async def _on_strop_error(request: Request, error: Any) -> JSONResponse:
    response = answer(error)
    if response.status_code >= 500:
        log.error("%s %s: %s", request.method, request.url.path, error.message)
    return response


async def _on_invalid(request: Request, error: Any) -> JSONResponse:
    """The first fault that pydantic found, in OpenAI's form."""
    return JSONResponse(invalid_body(error.errors()), 400)


async def _on_http(request: Request, error: Any) -> JSONResponse:
    """What the framework itself refuses: unknown paths, wrong methods, bodies over the limit."""
    status = error.status_code
    if status in (404, 405):
        return no_such_path(request)
    if isinstance(error.__cause__, StropError):
        return answer(error.__cause__)
    return envelope(status, str(error.detail), HTTPStatus(status).phrase.lower().replace(" ", "_"), None, error.headers)


def no_such_path(request: Request) -> JSONResponse:
    """The answer where nothing is served: another method for this path, or a hint at /v1."""
    path = request.url.path
    allowed = _methods(request)
    if allowed:
        message = f"{request.method} {path}: no such method here, but {', '.join(allowed)}"
        return envelope(405, message, "method_not_allowed", None, {"allow": ", ".join(allowed)})
    message = f"{request.method} {path}: no such path"
    if path != "/v1" and not path.startswith("/v1/"):
        message += f"; the API is under /v1: add it to the base URL, as in {request.base_url}v1"
    return envelope(404, message, "unknown_url")


def _methods(request: Request) -> list[str]:
    """Methods that the path of a request knows; the catch-all and mounted pages know every path."""
    routes = [
        route
        for route in request.app.routes
        if not isinstance(route, Mount) and getattr(route, "name", None) != CATCH_ALL
    ]
    return [
        method
        for method in METHODS
        if any(route.matches({**request.scope, "method": method})[0] is Match.FULL for route in routes)
    ]


async def _on_os_error(request: Request, error: Any) -> JSONResponse:
    """A full disk is worth a word of its own; the rest is a defect."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        place = f" while writing {error.filename}" if error.filename else ""
        log.error("%s %s: no space left%s", request.method, request.url.path, place)
        return envelope(507, "no space left on the server's disk; free some and try again", "disk_full")
    return await _on_defect(request, error)


async def _on_database_error(request: Request, error: Any) -> JSONResponse:
    """A database that is busy, full or away. Its message may hold values, so it goes to the log only."""
    log.error("%s %s: %s", request.method, request.url.path, error.orig)
    message = "the database does not answer, or its disk is full; see server.log"
    return answer(errors.Unavailable(message, retry_after=5))


async def _on_database_refusal(request: Request, error: Any) -> JSONResponse:
    """PostgreSQL stores no NUL in a text, and no number beyond its type."""
    return answer(errors.InvalidRequest("a value contains a NUL character or a number that is too large to store"))


async def _on_defect(request: Request, error: Exception) -> JSONResponse:
    """Something that we did not foresee: the log has the traceback, the client the request's id."""
    log.error("%s %s", request.method, request.url.path, exc_info=error)
    return envelope(500, "the server failed on this request; its log has the reason", "internal_error")


_HANDLERS: Mapping[type[Exception], Callable[[Request, Any], Awaitable[JSONResponse]]] = {
    StropError: _on_strop_error,
    RequestValidationError: _on_invalid,
    HTTPException: _on_http,
    OSError: _on_os_error,
    OperationalError: _on_database_error,
    DataError: _on_database_refusal,
}
