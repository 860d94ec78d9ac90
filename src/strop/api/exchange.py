"""One request and its answer: a limit, an id, safe headers, a line in the log, and no way to fall through."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable

import anyio
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from strop.api.errors import respond
from strop.api.guard import has_body
from strop.errors import TooLarge

log = logging.getLogger("strop.api")

Observer = Callable[[Scope, int, float], None]
"""Called for every response with the scope and its route, the status, and the seconds until its last byte."""

_DRAINED_BYTES = 64 * 1024 * 1024
_DRAINED_S = 10.0

_EVERYWHERE = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "x-frame-options": "DENY",
    # The toolkit of the pages puts its program into the page and compiles templates there.
    "content-security-policy": (
        "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data: blob:; font-src 'self' data:; "
        "frame-ancestors 'none'; base-uri 'self'; object-src 'none'; form-action 'self'"
    ),
}
# Nothing of the API is for a browser to run or to keep.
_API = {
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'; sandbox",
    "cache-control": "no-store",
}


class Exchange:
    """ASGI middleware, the outermost."""

    def __init__(self, app: ASGIApp, observer: Observer, limit: Callable[[str], int]) -> None:
        """`limit` gives the bytes that a body may have, by path."""
        self._app = app
        self._observer = observer
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(scope, receive, send, self._limit(scope["path"]))
        try:
            exchange.check_announced()
            await self._app(scope, exchange.receive, exchange.send)
        except Exception as error:
            if exchange.status is not None:
                raise  # half an answer is out: the connection ends
            await (await respond(Request(scope), error))(scope, exchange.receive, exchange.send)
        finally:
            seconds = time.perf_counter() - exchange.started
            status = exchange.status or 499  # the client went away before there was an answer
            self._observer(scope, status, seconds)
            _note(scope, status, seconds)


class _Exchange:
    """What the middleware has to remember of one request."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, limit: int) -> None:
        self._scope, self._receive, self._send, self._limit = scope, receive, send, limit
        self._headers = Headers(scope=scope)
        self._body_left = has_body(self._headers) and "expect" not in self._headers
        self._size = 0
        self.started = time.perf_counter()
        self.status: int | None = None
        scope.setdefault("state", {})["request_id"] = f"req_{secrets.token_hex(12)}"

    def check_announced(self) -> None:
        """Refuse a body that says itself that it is too large."""
        announced = self._headers.get("content-length", "0")
        if announced.isdecimal() and int(announced) > self._limit:
            raise self._too_large()

    async def receive(self) -> Message:
        message = await self._next()
        if self._size > self._limit:
            # Of the framework's kind, which its reading of bodies lets through.
            raise HTTPException(413) from self._too_large()
        return message

    async def _next(self) -> Message:
        message = await self._receive()
        self._size += len(message.get("body", b""))
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            self._body_left = False
        return message

    def _too_large(self) -> TooLarge:
        return TooLarge(f"the body has more than the {self._limit:,} bytes that this path takes")

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            await self._drain()
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            headers["x-request-id"] = self._scope["state"]["request_id"]
            api = self._scope["path"].startswith("/v1/") or headers.get("content-type") == "application/json"
            for name, value in (_EVERYWHERE | _API if api else _EVERYWHERE).items():
                headers.setdefault(name, value)
        await self._send(message)

    async def _drain(self) -> None:
        """Read the rest of the request body: clients read the answer only after they have sent it.

        Up to a limit: to take in a body of any size only to refuse it would help an attacker.
        """
        limit = self._size + _DRAINED_BYTES
        with anyio.move_on_after(_DRAINED_S):
            while self._body_left and self._size < limit:
                await self._next()


def _note(scope: Scope, status: int, seconds: float) -> None:
    """A line in the log. Never log the query or a header: they may hold secrets."""
    state = scope["state"]
    key = f" key {state['key']!r}" if "key" in state else ""
    log.info("%s %r %d %.0f ms %s%s", scope["method"], scope["path"], status, seconds * 1000, state["request_id"], key)
