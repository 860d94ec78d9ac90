"""What can go wrong with a call to an endpoint, and whether another try can help."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

import openai

from strop.endpoints.addresses import BlockedAddress
from strop.endpoints.replies import NoCompletion
from strop.endpoints.server import Server
from strop.endpoints.transport import UnwantedAnswer

RETRIED = frozenset({408, 409, 429})
"""Statuses that may pass, beside all from 500 on."""


@dataclass(frozen=True)
class Problem:
    """Why a call brought no answer.

    Causes: `rate_limit`, `server`, `connection`, `timeout` and `response` (it is no chat
    completion) may pass; `quota`, `credentials`, `not_found`, `redirect`, `address` (out of
    bounds), `size` (of the answer) and `request` (it cannot be sent) stay until somebody changes
    a setting; `refused` is about this request only.
    """

    cause: str
    message: str
    """One line without the key, with the setting to look at."""
    temporary: bool = False
    """Whether another try can help."""
    retry_after: float | None = None
    """Seconds to wait before it, where the server says so."""


class CallFailed(Exception):
    """A call without an answer; asking again will not help in time."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


def problem_of(error: BaseException, server: Server, model: str | None = None) -> Problem:
    """Classify what a client, its transport or the reader of an answer raised."""
    match error:
        case openai.APIStatusError():
            return _of_status(error, server, model)
        case openai.APIConnectionError() if error.__cause__ is not None:
            return problem_of(error.__cause__, server, model)
        case BlockedAddress():
            return Problem("address", f"base_url is refused: {error.message}")
        case UnwantedAnswer():
            return Problem("size", f"the response has {error}")
        case NoCompletion():
            return Problem("response", server.clean(str(error)), temporary=True)
        case ValueError() | TypeError():
            return Problem("request", server.clean(f"the request cannot be sent: {error}"))
    return Problem("connection", server.clean(f"no connection: {type(error).__name__}: {error}"), temporary=True)


def said(error: openai.APIStatusError, server: Server) -> str:
    """What the server says about a refusal, without the key."""
    body = error.body
    text = body.get("message") if isinstance(body, dict) else None
    return server.clean(str(text or error.message))


def _of_status(error: openai.APIStatusError, server: Server, model: str | None) -> Problem:
    status, words = error.status_code, said(error, server)
    if error.code == "insufficient_quota":
        return Problem("quota", f"{status}: {words}; the account has no credit left")
    if status in RETRIED or status >= 500:
        cause = "rate_limit" if status == 429 else "server"
        return Problem(cause, f"{status}: {words}", True, _retry_after(error.response.headers))
    if status < 400:
        hint = "a redirect, which is not followed; write the final address as base_url"
        return Problem("redirect", f"{status}: {hint}")
    if status in (401, 403):
        return Problem("credentials", f"{status}: the server refuses {_shown_key(server)}: {words}")
    if status == 404:
        name = f" and the model's name, {model!r}" if model else ""
        return Problem("not_found", f"404: check base_url (most end with /v1){name}: {words}")
    return Problem("refused", f"{status}: {words}")


def _shown_key(server: Server) -> str:
    if server.key_name:
        return f"the key in ${server.key_name}"
    return "the key" if server.key else "a request without a key; set api_key_env"


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that a server asks to wait, from any form of the header."""
    text = headers.get("retry-after", "").strip()
    milliseconds = headers.get("retry-after-ms", "").strip()
    try:
        if milliseconds.isdecimal():
            return int(milliseconds) / 1000
        if text.replace(".", "", 1).isdecimal():
            return float(text)
        return max(parsedate_to_datetime(text).timestamp() - time.time(), 0.0)
    except (ValueError, OverflowError):
        return None
