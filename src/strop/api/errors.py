"""Errors as clients see them: `{"error": {"message", "type", "param", "code"}}`, and a status.

OpenAI's client tries again after 408, 409, 429 and 5xx, unless a header tells it not to.
"""

from __future__ import annotations

import errno
import logging
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
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

log = logging.getLogger("strop.api")

# The first class that an error is an instance of counts; what is not here is our own fault.
STATUS: Mapping[type[StropError], int] = {
    errors.NotFound: 404,
    errors.Conflict: 409,
    errors.Unauthorized: 401,
    errors.Forbidden: 403,
    errors.TooLarge: 413,
    errors.RateLimited: 429,
    errors.Unavailable: 503,
    errors.InvalidRequest: 400,
    errors.ConfigError: 400,
    errors.DataError: 400,
    errors.RewardError: 400,
    errors.ModelError: 400,
    errors.RunError: 400,
    errors.CheckpointError: 400,
}
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
CATCH_ALL = "unknown"
"""Name of the route for every path under /v1 that has no other."""
_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    429: "rate_limit_error",
}


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
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    body = {"error": {"message": message, "type": kind, "param": param, "code": code}}
    return JSONResponse(body, status, headers)


def answer(error: StropError) -> JSONResponse:
    """What a client gets to see of one of our errors."""
    status = next((status for kind, status in STATUS.items() if isinstance(error, kind)), 500)
    headers = {}
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    if status == 409:
        headers["x-should-retry"] = "false"
    if isinstance(error, errors.TryLater):
        headers["retry-after"] = str(math.ceil(error.retry_after))
    return envelope(status, error.message, error.code, error.param, headers)


async def _on_strop_error(request: Request, error: Any) -> JSONResponse:
    response = answer(error)
    if response.status_code >= 500:
        log.error("%s %s: %s", request.method, request.url.path, error.message)
    return response


async def _on_invalid(request: Request, error: Any) -> JSONResponse:
    """The first fault that pydantic found, in OpenAI's form."""
    fault = error.errors()[0]
    if fault["type"] == "json_invalid":
        message = f"the body is no valid JSON: {fault.get('ctx', {}).get('error', 'it cannot be parsed')}"
        return envelope(400, message, "invalid_json")
    unknown = (fault["ctx"]["key"],) if fault["type"] == "unknown_key" else ()  # see api.bodies
    param = param_of((*fault["loc"], *unknown))
    return envelope(400, f"{param or 'body'}: {fault['msg']}", "invalid_request", param)


def param_of(location: Sequence[int | str]) -> str | None:
    """`messages[0].content` for where pydantic found a fault; the part of the request is left out."""
    names = [part for part in location if not str(part).startswith("function-")]
    path = ""
    for part in names[1:] if names and names[0] in ("body", "query", "path", "header", "form") else names:
        path += f"[{part}]" if isinstance(part, int) else f".{part}"
    return path.removeprefix(".") or None


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
        message += f"; the API lies under /v1: add it to the base URL, as in {request.base_url}v1"
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
    return answer(errors.InvalidRequest("a value holds a NUL character, or a number that is too large to store"))


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
