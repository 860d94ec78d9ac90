"""Talking to a model process over its Unix socket."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx2
from pydantic import TypeAdapter

from strop.errors import InvalidRequest, StropError, Unavailable
from strop.http.errors import error_of
from strop.serve.socket_path import reachable
from strop.serve.state import EngineState, ModelState

Json = dict[str, Any]

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
_MODEL_STATE = TypeAdapter(ModelState)
_ENGINE_STATE = TypeAdapter(EngineState)
_CONNECT_S = 10.0


class EngineClient:
    """The model process behind a socket. For one event loop.

    Every call raises the StropError that the process answers with, and Unavailable where the
    process is down or goes down meanwhile.
    """

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._open = ExitStack()
        self._http: httpx2.AsyncClient | None = None
        self.lost = False
        """Whether a connection broke, and the process was not reached since."""

    async def load(self, name: str, source: str) -> ModelState:
        """Have a model in memory under `name`: a catalogue name, a hub id, or a folder of full
        weights or an adapter. Does nothing where it is loaded already. Conflict where the name has
        another source."""
        return _MODEL_STATE.validate_python(await self.complete("/v1/strop/load", {"name": name, "source": source}))

    async def unload(self, name: str) -> None:
        """Unload a model and free its memory; its requests in progress fail with Unavailable."""
        await self.complete("/v1/strop/unload", {"name": name})

    async def state(self) -> EngineState:
        """The loaded models and their load."""
        with self._connection() as http:
            response = await http.get("/v1/strop/state")
            _check(response, response.content)
            return _ENGINE_STATE.validate_json(response.content)

    async def complete(self, path: str, body: Json) -> Json:
        """The answer to a request, say to `CHAT` or `TEXT`. Cancelling this cancels the request."""
        with self._connection() as http:
            response = await http.post(path, content=_encoded(body), headers=_JSON)
            _check(response, response.content)
            found: Json = response.json()
            return found

    async def stream(self, path: str, body: Json) -> AsyncGenerator[Json]:
        """The chunks of a streamed answer as they come. Closing the iterator cancels the request."""
        content = _encoded({**body, "stream": True})
        with self._connection() as http:
            async with http.stream("POST", path, content=content, headers=_JSON) as response:
                if response.status_code != 200:
                    _check(response, await response.aread())
                async for line in response.aiter_lines():
                    data = line.removeprefix("data: ")
                    if data == line:  # a blank line, or a comment
                        continue
                    if data == "[DONE]":
                        return
                    chunk = json.loads(data)
                    if "error" in chunk:
                        raise error_of(500, chunk, {})
                    yield chunk
        raise Unavailable(_ENDED)

    async def close(self) -> None:
        """Close all connections."""
        if self._http is not None:
            await self._http.aclose()
            self._http = None
        self._open.close()

    @contextmanager
    def _connection(self) -> Iterator[httpx2.AsyncClient]:
        """The HTTP client; what breaks a connection becomes Unavailable."""
        try:
            yield self._client()
        except StropError:  # its answer
            self.lost = False
            raise
        except (httpx2.ConnectError, OSError):
            self.lost = True
            raise Unavailable("the model process is not running; try again in a moment") from None
        except httpx2.TransportError:
            self.lost = True
            raise Unavailable(_ENDED) from None
        else:
            self.lost = False

    def _client(self) -> httpx2.AsyncClient:
        if self._http is None:
            transport = httpx2.AsyncHTTPTransport(
                uds=self._open.enter_context(reachable(self._socket)),
                # A connection for each request: one kept alive may be closed by the other side just
                # then, which looks as if the process had ended.
                limits=httpx2.Limits(max_connections=None, max_keepalive_connections=0),
            )
            timeout = httpx2.Timeout(None, connect=_CONNECT_S)
            self._http = httpx2.AsyncClient(transport=transport, base_url="http://models", timeout=timeout)
        return self._http


_JSON = {"content-type": "application/json"}
_ENDED = "the model process has ended; try again in a moment"


def _encoded(body: Json) -> bytes:
    try:
        return json.dumps(body, ensure_ascii=False).encode()
    except ValueError as error:  # half a character has no bytes
        raise InvalidRequest(f"the request cannot be sent to the model: {error}") from None


def _check(response: httpx2.Response, content: bytes) -> None:
    if response.status_code != 200:
        raise error_of(response.status_code, content, response.headers)
