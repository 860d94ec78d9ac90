"""What a browser may send to a server on this machine.

A page of any site can make the browser of its visitor send requests to localhost. Browsers say
where a request comes from, in headers that no page can forge, and that other clients leave
out. A host name that only points to this machine (DNS rebinding) is refused too.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from strop.api.errors import answer
from strop.errors import Forbidden

_SAFE = ("GET", "HEAD")
_OWN_SITE = ("same-origin", "none")  # `none`: typed into the address bar, or a bookmark


class Guard:
    """ASGI middleware of a loopback server."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = _refusal(scope) if scope["type"] in ("http", "websocket") else None
        if refusal is None:
            await self._app(scope, receive, send)
        else:
            await answer(Forbidden(refusal))(scope, receive, send)


def has_body(headers: Headers) -> bool:
    """Whether a request announces a body that is not empty."""
    return headers.get("content-length", "0") != "0" or "transfer-encoding" in headers


def is_loopback(host: str) -> bool:
    """Whether a host can only mean this machine: localhost, or an address of the loopback interface."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False


def _refusal(scope: Scope) -> str | None:
    """Why a request is refused; None where it is not."""
    headers = Headers(scope=scope)
    hosts = headers.getlist("host")
    if len(hosts) != 1 or not is_loopback(_name(hosts[0])):
        return f"this server answers on this machine only, as localhost, not as {', '.join(hosts) or 'nothing'}"
    return foreign_page(scope, headers)


def foreign_page(scope: Scope, headers: Headers) -> str | None:
    """Why a request that a browser sends for a page of another site is refused; None for all others."""
    for origin in headers.getlist("origin"):
        if urlsplit(origin).netloc.lower() != headers.get("host", "").lower():
            return f"a page from {origin} may not use this server"
    site = headers.get("sec-fetch-site")
    if site is not None and site not in _OWN_SITE and not _link_followed(scope, headers):
        return f"a page from elsewhere ({site}) may not use this server"
    return None


def _name(host: str) -> str:
    """A host without its port."""
    return host.rpartition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]


def _link_followed(scope: Scope, headers: Headers) -> bool:
    """Whether a person followed a link to here, which shows them something and changes nothing."""
    shown = (headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")) == ("navigate", "document")
    return shown and scope["type"] == "http" and scope["method"] in _SAFE
