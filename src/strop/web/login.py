"""Where a person shows a key to a server that others reach. Plain HTML: nothing runs before it."""

from __future__ import annotations

from html import escape
from urllib.parse import parse_qs

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from strop.api.auth import COOKIE, LOGIN, RateLimit
from strop.errors import RateLimited
from strop.services import keys
from strop.services.container import Services

_TRIES_A_MINUTE = 20
_DAYS_KEPT = 30
_MOST_BYTES = 4096
_FORM = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Log in · strop</title>
<link rel="stylesheet" href="/ui/static/tokens.css">
</head>
<body>
<main class="s-main s-login">
<h1>strop</h1>
<p>This server requires an API key. The administrator creates one with <code>strop keys create NAME</code>.</p>
{fault}
<form method="post" class="s-column">
<label class="s-column">API key
<input class="s-input" name="key" type="password" autocomplete="current-password" required autofocus></label>
<button class="s-plain s-plain--primary" type="submit">Log in</button>
</form>
</main>
</body>
</html>
"""


def add_login(app: FastAPI, services: Services) -> None:
    """Add the page, and what it sends the key to."""
    limit = RateLimit(_TRIES_A_MINUTE)

    async def show() -> Response:
        return HTMLResponse(_FORM.format(fault=""))

    async def check(request: Request) -> Response:
        try:
            limit.take(request.client.host if request.client else "")
        except RateLimited:
            return _refused("Too many attempts. Wait a minute, then try again.", 429)
        body = (await request.body())[:_MOST_BYTES]
        text = parse_qs(body.decode("utf-8", "replace")).get("key", [""])[0].strip()
        if not await keys.knows(services, text):
            return _refused("This key is unknown or has been revoked.", 401)
        answer = RedirectResponse("/", 303)
        secure = request.url.scheme == "https"
        answer.set_cookie(
            COOKIE, text, max_age=_DAYS_KEPT * 86_400, httponly=True, samesite="strict", secure=secure, path="/"
        )
        return answer

    app.add_api_route(LOGIN, show, methods=["GET"], include_in_schema=False)
    app.add_api_route(LOGIN, check, methods=["POST"], include_in_schema=False)


def _refused(fault: str, status: int) -> Response:
    return HTMLResponse(_FORM.format(fault=f'<p class="s-error" role="alert">{escape(fault)}</p>'), status)
