"""What crosses the socket between a server and its model process: frames of JSON, never pickle.

A frame is four bytes of length, then `[stream, kind, body]`. The client picks the number of a
stream, one for each call; every answer carries it, so that many calls share one connection.
A call ends with `Done`, `Ok`, a state, or `Fault`.
"""

from __future__ import annotations

import asyncio
import json
import os
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from strop import errors
from strop.errors import InvalidRequest, ModelError, ServerError, StropError, TryLater
from strop.types import Json

MAX_FRAME = 64 * 2**20
MAX_COUNT = 128
MAX_TOP_LOGPROBS = 20
_LENGTH = struct.Struct(">I")
_MAX_SOCKET_PATH = 100  # the kernel has 108 bytes for it, other systems a few less


@dataclass(frozen=True)
class ChatRequest:
    """Completions wanted for one conversation."""

    id: str
    """For logs."""
    model: str
    """Name that the model was loaded under."""
    messages: tuple[Mapping[str, Json], ...]
    """In OpenAI's form. Content is text, null, or a list of text parts."""
    tools: tuple[Mapping[str, Json], ...] = ()
    """Function schemas, in OpenAI's form."""
    template: Mapping[str, Json] = field(default_factory=dict)
    """Options for the chat template, say `{"enable_thinking": false}`."""
    n: int = 1
    max_tokens: int | None = None
    """Limit on each completion; by default, what the model's positions leave."""
    temperature: float = 1.0
    top_p: float = 1.0
    stop: tuple[str, ...] = ()
    seed: int | None = None
    """The same seed, messages and weights give the same completions; by default, fresh chance."""
    logprobs: bool = False
    """Whether tokens come with the text."""
    top_logprobs: int = 0
    """How many of the likeliest tokens come with each token."""


@dataclass(frozen=True)
class Alternative:
    """A token that could have been drawn."""

    text: str
    id: int
    logprob: float
    bytes: tuple[int, ...]


@dataclass(frozen=True)
class Token:
    """A token of a completion."""

    text: str
    """U+FFFD for bytes that are no whole character by themselves: see `bytes`."""
    id: int
    logprob: float
    """At the sampling temperature; at temperature 1 where that is 0."""
    bytes: tuple[int, ...]
    top: tuple[Alternative, ...] = ()
    """The likeliest first."""


@dataclass(frozen=True)
class Delta:
    """The next piece of one completion: whole characters, never a part of a stop string."""

    index: int
    text: str
    tokens: tuple[Token, ...] = ()
    """Where `logprobs` was asked for: those whose text is out with this piece."""


@dataclass(frozen=True)
class Finished:
    """One completion has ended."""

    index: int
    finish_reason: Literal["stop", "length"]
    completion_tokens: int


@dataclass(frozen=True)
class Done:
    """All completions of a request have ended."""

    prompt_tokens: int
    completion_tokens: int
    """Of all completions together."""


@dataclass(frozen=True)
class Load:
    """Call: have a model in memory under a name. Ends with its `ModelState`."""

    name: str
    source: str
    """Catalogue name, hub id, or folder of full weights or an adapter."""


@dataclass(frozen=True)
class Unload:
    """Call: forget a model. Ends with `Ok`, also where there is none of that name."""

    name: str


@dataclass(frozen=True)
class GetState:
    """Call: what is loaded. Ends with an `EngineState`."""


@dataclass(frozen=True)
class Cancel:
    """The client no longer wants the answers of this frame's stream. Nothing answers it."""


@dataclass(frozen=True)
class Ok:
    """A call is done and has nothing to say."""


@dataclass(frozen=True)
class ModelState:
    """A loaded model."""

    name: str
    source: str
    base: str | None
    """Folder of the base whose weights an adapter shares; None for full weights."""
    memory_bytes: int
    """What it alone takes: for an adapter, without the base."""
    cache_bytes: int
    """Keys and values of what is in flight."""
    in_flight: int
    """Completions that are being decoded."""
    queued: int
    """Completions that wait for a place."""
    max_length: int | None
    """Positions: prompt and completion together."""


@dataclass(frozen=True)
class EngineState:
    """All that a model process holds."""

    models: tuple[ModelState, ...]
    memory_bytes: int
    """Weights, each counted once, and caches."""
    memory_limit: int
    device: str


@dataclass(frozen=True)
class Fault:
    """A call has failed."""

    kind: str
    """Name of the class in `strop.errors`."""
    message: str
    param: str | None = None
    retry_after: float | None = None

    @classmethod
    def of(cls, error: Exception) -> Fault:
        """What the other side gets to see of an error."""
        if not isinstance(error, StropError):
            return cls(ModelError.__name__, f"{type(error).__name__}: {error}")
        kind = next(kind for kind in type(error).__mro__ if kind.__module__ == errors.__name__)
        return cls(kind.__name__, error.message, error.param, getattr(error, "retry_after", None))

    def error(self) -> StropError:
        """The error to raise on this side."""
        kind = getattr(errors, self.kind, None)
        if not (isinstance(kind, type) and issubclass(kind, StropError)):
            kind = ModelError
        error = kind(self.message, param=self.param)
        if isinstance(error, TryLater) and self.retry_after is not None:
            error.retry_after = self.retry_after
        return error


Call = ChatRequest | Load | Unload | GetState | Cancel
Event = Delta | Finished | Done
"""What a `ChatRequest` is answered with, in order; `Done` comes last."""
Answer = Event | ModelState | EngineState | Ok | Fault

_BODIES: Mapping[str, TypeAdapter[Any]] = {
    kind.__name__: TypeAdapter(kind)
    for kind in (ChatRequest, Load, Unload, GetState, Cancel, Delta, Finished, Done, ModelState, EngineState, Ok, Fault)
}


@dataclass(frozen=True)
class Frame:
    """One message on the socket."""

    stream: int
    body: Call | Answer

    def encode(self) -> bytes:
        """Length and JSON. InvalidRequest for what cannot be sent."""
        kind = type(self.body).__name__
        try:
            body = _BODIES[kind].dump_json(self.body)
        except ValueError as error:  # a lone surrogate is no character and has no bytes
            raise InvalidRequest(f"the request cannot be sent to the model: {error}") from None
        payload = b'[%d,"%s",%s]' % (self.stream, kind.encode(), body)
        if len(payload) > MAX_FRAME:
            raise InvalidRequest(f"the request has {len(payload) / 2**20:.0f} MiB, {MAX_FRAME // 2**20} are allowed")
        return _LENGTH.pack(len(payload)) + payload

    @classmethod
    def decode(cls, payload: bytes) -> Frame:
        """ServerError where the bytes are no frame: the two sides are not of one version."""
        try:
            stream, kind, body = json.loads(payload)
            return cls(stream, _BODIES[kind].validate_python(body))
        except (ValueError, KeyError, TypeError, RecursionError, ValidationError) as error:
            raise ServerError(f"a frame that cannot be read: {error}") from error


async def read_frame(reader: asyncio.StreamReader) -> Frame | None:
    """The next frame; None where the other side has closed the connection."""
    try:
        (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        if length > MAX_FRAME:
            raise ServerError(f"a frame of {length} bytes, {MAX_FRAME} are allowed")
        return Frame.decode(await reader.readexactly(length))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


@contextmanager
def reachable(socket: Path) -> Iterator[str]:
    """A path for the socket that is short enough for the kernel, inside the block only."""
    if len(os.fsencode(socket)) <= _MAX_SOCKET_PATH:
        yield str(socket)
        return
    folder = os.open(socket.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        short = Path(f"/proc/self/fd/{folder}")
        if not short.exists():
            raise ServerError(f"{socket}: longer than the {_MAX_SOCKET_PATH} bytes that a socket's path may have")
        yield str(short / socket.name)
    finally:
        os.close(folder)
