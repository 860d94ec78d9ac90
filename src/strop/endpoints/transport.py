"""HTTP to URLs from users: only to checked addresses, with a size limit on the answer."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Collection

import httpx2

from strop.endpoints.addresses import resolve

CONNECT_TIMEOUT_S = 10.0
MAX_ANSWER_BYTES = 8 * 2**20
"""A completion with long reasoning is well below it."""

SENT = frozenset({"accept", "authorization", "connection", "content-length", "content-type", "host", "user-agent"})
"""Headers; the client would add whatever $OPENAI_CUSTOM_HEADERS holds, and more about this machine."""
FOR_OPENAI = frozenset({"openai-organization", "openai-project"})

Resolve = Callable[[str, int, bool], Awaitable[list[str]]]


class UnwantedAnswer(Exception):
    """An answer exceeds the size limit."""


class GuardedTransport(httpx2.AsyncBaseTransport):
    """Connects to the very address that was checked: between a check and a connection a name could change.

    Sends the headers in `sent` and no others. Proxies from the environment are not used; what
    they connect to could not be checked.
    """

    def __init__(
        self,
        allow_private: bool,
        sent: Collection[str],
        verify: ssl.SSLContext | bool = True,
        resolve_host: Resolve = resolve,
    ) -> None:
        self._inner = httpx2.AsyncHTTPTransport(verify=verify)
        self._allow_private = allow_private
        self._sent = sent
        self._resolve = resolve_host

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Raises BlockedAddress, and whatever httpx2 raises."""
        host = request.url.raw_host.decode("ascii")
        port = request.url.port or (443 if request.url.scheme == "https" else 80)
        try:
            addresses = await self._resolve(host, port, self._allow_private)
        except OSError as error:
            raise httpx2.ConnectError(f"{host} has no address: {error.strerror}", request=request) from error
        for address in addresses[:-1]:
            try:
                return await self._send(request, host, address)
            except (httpx2.ConnectError, httpx2.ConnectTimeout):
                continue
        return await self._send(request, host, addresses[-1])

    async def aclose(self) -> None:
        """Close all connections."""
        await self._inner.aclose()

    async def _send(self, request: httpx2.Request, host: str, address: str) -> httpx2.Response:
        headers = {name: value for name, value in request.headers.items() if name in self._sent}
        pinned = httpx2.Request(
            request.method,
            request.url.copy_with(host=address),
            # A few packed bytes could unpack to gigabytes. `host` is among the others, with the name.
            headers=headers | {"accept-encoding": "identity"},
            stream=request.stream,
            extensions={**request.extensions, "sni_hostname": host},
        )
        response = await self._inner.handle_async_request(pinned)
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            raise UnwantedAnswer("compressed content, which was not requested")
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        return httpx2.Response(
            response.status_code,
            headers=response.headers,
            stream=_Bounded(response.stream),
            extensions=response.extensions,
        )


def guarded_http(allow_private: bool = True, sent: Collection[str] = SENT | FOR_OPENAI) -> httpx2.AsyncClient:
    """A client that reaches no address which gives away credentials, and follows no redirect.

    `allow_private` allows this machine and private networks, where models of one's own answer.
    """
    return httpx2.AsyncClient(
        transport=GuardedTransport(allow_private, sent),
        follow_redirects=False,
        trust_env=False,
        timeout=httpx2.Timeout(None, connect=CONNECT_TIMEOUT_S),
    )


class _Bounded(httpx2.AsyncByteStream):
    """The body of an answer, up to the limit."""

    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._inner:
            size += len(chunk)
            if size > MAX_ANSWER_BYTES:
                raise UnwantedAnswer(f"more than {MAX_ANSWER_BYTES:,} bytes")
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()
