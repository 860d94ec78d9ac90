"""Keys: who may use a server that other machines reach, and how much."""

from __future__ import annotations

import time
from collections.abc import Callable

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from strop.api.errors import answer
from strop.api.guard import foreign_page
from strop.errors import Forbidden, RateLimited, Unauthorized
from strop.store.keys import Key, KeyStore

LOGIN = "/login"
"""Where a person shows a key; the browser keeps it in `COOKIE`."""
COOKIE = "strop_key"
OPEN = frozenset({"/health", LOGIN, "/ui/static/tokens.css"})
"""Paths that need no key: whether the server lives, and where to show one."""


class Auth:
    """ASGI middleware: no request passes without a key, and none over its limit.

    `scope["state"]["key"]` is the key's name for what comes after.
    """

    def __init__(self, app: ASGIApp, keys: KeyStore, limit: RateLimit) -> None:
        self._app = app
        self._keys = keys
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket") or scope["path"] in OPEN:
            await self._app(scope, receive, send)
            return
        try:
            key = await self._identify(HTTPConnection(scope))
            self._limit.take(key.id)
        except (Forbidden, Unauthorized, RateLimited) as refusal:
            response = RedirectResponse(LOGIN, 303) if _wants_page(scope, refusal) else answer(refusal)
            await response(scope, receive, send)
            return
        scope.setdefault("state", {})["key"] = key.name
        await self._app(scope, receive, send)

    async def _identify(self, connection: HTTPConnection) -> Key:
        scheme, _, text = connection.headers.get("authorization", "").partition(" ")
        if not scheme and COOKIE in connection.cookies:
            # A browser sends the cookie by itself, whatever page asks it to.
            if (refusal := foreign_page(connection.scope, connection.headers)) is not None:
                raise Forbidden(refusal)
            scheme, text = "bearer", connection.cookies[COOKIE]
        if scheme.lower() != "bearer" or not text.strip():
            raise Unauthorized(
                "this server needs a key: send `Authorization: Bearer sk-strop-…`; "
                "who runs the server makes one with `strop keys create NAME`"
            )
        key = await run_in_threadpool(self._keys.verify, text.strip())
        if key is None:
            raise Unauthorized("the key is unknown or revoked; who runs the server makes one with `strop keys create`")
        return key


def _wants_page(scope: Scope, refusal: Exception) -> bool:
    """Whether a person without a key looks for a page, and is better shown where to log in."""
    if scope["type"] != "http" or scope["method"] != "GET" or scope["path"].startswith("/v1/"):
        return False
    return isinstance(refusal, Unauthorized) and "text/html" in Headers(scope=scope).get("accept", "")


class RateLimit:
    """A bucket for each key: it holds a minute's worth of requests and fills evenly."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._capacity = float(per_minute)
        self._rate = per_minute / 60
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}  # what is left, and when

    def take(self, name: str) -> None:
        """Take one request out of a bucket. RateLimited, with the time to wait, when it is empty."""
        now = self._clock()
        left, then = self._buckets.get(name, (self._capacity, now))
        left = min(self._capacity, left + (now - then) * self._rate)
        self._buckets[name] = (max(left - 1, 0) if left >= 1 else left, now)
        if left < 1:
            problem = f"more than {self._capacity:.0f} requests a minute with this key; slow down"
            raise RateLimited(problem, retry_after=(1 - left) / self._rate)
