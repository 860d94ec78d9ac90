"""Errors over HTTP in OpenAI's form, in both directions: `{"error": {"message", "type", "param", "code"}}`.

Knows no web framework: clients use it too.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from strop import errors
from strop.errors import StropError
from strop.types import Json

# The first class that an error is an instance of counts; any other error is the server's own fault.
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
_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    429: "rate_limit_error",
}
# For servers that name no code of ours.
_BY_STATUS: Mapping[int, type[StropError]] = {
    401: errors.Unauthorized,
    403: errors.Forbidden,
    404: errors.NotFound,
    409: errors.Conflict,
    413: errors.TooLarge,
    429: errors.RateLimited,
    502: errors.Unavailable,
    503: errors.Unavailable,
    504: errors.Unavailable,
}


def status_of(error: StropError) -> int:
    """The status that an error is answered with."""
    return next((status for kind, status in STATUS.items() if isinstance(error, kind)), 500)


def headers_of(error: StropError) -> dict[str, str]:
    """The headers that go with the status."""
    headers = {}
    status = status_of(error)
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    if status == 409:
        headers["x-should-retry"] = "false"
    if isinstance(error, errors.TryLater):
        headers["retry-after"] = str(math.ceil(error.retry_after))
    return headers


def error_body(status: int, message: str, code: str, param: str | None = None) -> dict[str, Json]:
    """The body of an answer that is an error."""
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def body_of(error: StropError) -> dict[str, Json]:
    """The body that a StropError is answered with."""
    return error_body(status_of(error), error.message, error.code, error.param)


def error_of(status: int, body: Json, headers: Mapping[str, str]) -> StropError:
    """The error that an answer stands for: of the same class that a server of ours raised."""
    try:
        body = json.loads(body) if isinstance(body, bytes | str) else body
        found = body["error"]
        message, code, param = str(found["message"]), found.get("code"), found.get("param")
    except (ValueError, KeyError, TypeError, AttributeError):
        message, code, param = f"HTTP status {status} without a reason", None, None
    kind = _KINDS.get(code) if isinstance(code, str) else None
    if kind is None:
        kind = _BY_STATUS.get(status, errors.InvalidRequest if 400 <= status < 500 else errors.ModelError)
    error = kind(message, param=param if isinstance(param, str) else None)
    if isinstance(error, errors.TryLater) and headers.get("retry-after", "").isdecimal():
        error.retry_after = float(headers["retry-after"])
    return error


def param_of(location: Sequence[int | str]) -> str | None:
    """`messages[0].content` for where pydantic found a fault; the part of the request is left out."""
    names = [part for part in location if not str(part).startswith("function-")]
    path = ""
    for part in names[1:] if names and names[0] in ("body", "query", "path", "header", "form") else names:
        path += f"[{part}]" if isinstance(part, int) else f".{part}"
    return path.removeprefix(".") or None


def invalid_body(faults: Sequence[Any]) -> dict[str, Json]:
    """The body of an answer to a request that pydantic refuses, with its first fault; the status is 400."""
    fault = faults[0]
    if fault["type"] == "json_invalid":
        message = f"the body is not valid JSON: {fault.get('ctx', {}).get('error', 'it cannot be parsed')}"
        return error_body(400, message, "invalid_json")
    unknown = (fault["ctx"]["key"],) if fault["type"] == "unknown_key" else ()  # see http.bodies
    param = param_of((*fault["loc"], *unknown))
    return error_body(400, f"{param or 'body'}: {fault['msg']}", "invalid_request", param)


def _subclasses(kind: type[StropError]) -> Iterator[type[StropError]]:
    for own in kind.__subclasses__():
        if own.__module__ == errors.__name__:
            yield own
            yield from _subclasses(own)


_KINDS: Mapping[str, type[StropError]] = {kind.code: kind for kind in _subclasses(StropError) if "code" in vars(kind)}
