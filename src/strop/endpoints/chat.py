"""Chat completions of one model: retried where that can help, in the form that its server understands."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import httpx2
import openai

from strop.endpoints.addresses import BlockedAddress
from strop.endpoints.client import open_client
from strop.endpoints.problems import CallFailed, Problem, problem_of, said
from strop.endpoints.replies import ChatReply, NoCompletion, read_reply
from strop.endpoints.server import Server
from strop.endpoints.transport import UnwantedAnswer
from strop.types import Json

FIRST_PAUSE_S = 0.5
MAX_PAUSE_S = 8.0

OPTIONAL: Mapping[str, tuple[str, ...]] = {
    "response_format": ("response_format", "json_schema", "structured output", "guided"),
    "max_completion_tokens": ("max_completion_tokens",),
    "seed": ("seed",),
}
"""Keys of a request that not every server understands, and the words by which a refusal names them."""
OLD_NAMES = {"max_completion_tokens": "max_tokens"}
"""What to send instead; other keys are left out."""


FAILURES = (openai.APIError, BlockedAddress, UnwantedAnswer, NoCompletion, httpx2.HTTPError, ValueError)
"""What a call raises; ValueError for text that cannot be sent."""


@dataclass(frozen=True)
class Retries:
    """How often and how long a call is tried."""

    seconds: float
    """For all tries together. One try has half of it, so that a server that hangs is asked twice."""
    tries: int = 8


class ChatEndpoint:
    """Asks one model. Use as `async with`, or call `close`."""

    def __init__(self, server: Server, model: str, retries: Retries, http: httpx2.AsyncClient | None = None) -> None:
        self._server = server
        self._model = model
        self._retries = retries
        self._client = open_client(server, http)
        self._unknown: set[str] = set()
        self._random = random.Random()  # not the global one: training is seeded

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def complete(self, body: Mapping[str, Json], deadline: float | None = None) -> ChatReply:
        """Ask for a chat completion; `body` has the keys of OpenAI's request beside `model`.

        `deadline`, on the monotonic clock, is for callers with several questions in one time
        limit. Raises CallFailed, whose message names model and address.
        """
        if deadline is None:
            deadline = time.monotonic() + self._retries.seconds
        problem = Problem("timeout", "there was no time to ask", temporary=True)
        tries = 0
        while tries < self._retries.tries and time.monotonic() < deadline:
            tries += 1
            try:
                return await self._try(body, deadline)
            except CallFailed as failed:
                problem = failed.problem
            if not problem.temporary:
                raise self._failed(problem, "")
            pause = self._pause(tries) if problem.retry_after is None else problem.retry_after
            # A try in the last moment could only fail, and hide why the one before it did.
            if time.monotonic() + pause > deadline - self._retries.seconds / 10:
                break
            if tries < self._retries.tries:
                await asyncio.sleep(pause)
        raise self._failed(problem, f" ({tries} {'try' if tries == 1 else 'tries'})")

    async def close(self) -> None:
        """Close all connections."""
        await self._client.close()

    async def _try(self, body: Mapping[str, Json], deadline: float) -> ChatReply:
        """Ask once; again at once without what the server says that it does not understand."""
        while True:
            sent = self._understood(body)
            seconds = min(deadline - time.monotonic(), self._retries.seconds / 2)
            try:
                async with asyncio.timeout(seconds):
                    return read_reply(await self._send(sent))
            except TimeoutError:
                waited = f"no answer within {max(seconds, 0):.2g} s"
                raise CallFailed(Problem("timeout", waited, temporary=True, retry_after=0.0)) from None
            except FAILURES as error:
                key = _not_understood(error, self._server, sent)
                if key is None:
                    raise CallFailed(problem_of(error, self._server, self._model)) from None
                self._unknown.add(key)

    async def _send(self, body: Mapping[str, Json]) -> bytes:
        options: dict[str, Any] = dict(body)
        reply = await self._client.chat.completions.with_raw_response.create(model=self._model, **options)
        content: bytes = reply.http_response.content
        return content

    def _understood(self, body: Mapping[str, Json]) -> dict[str, Json]:
        """The request without what this server does not understand."""
        kept = {key: value for key, value in body.items() if key not in self._unknown}
        return kept | {OLD_NAMES[key]: body[key] for key in self._unknown & body.keys() & OLD_NAMES.keys()}

    def _pause(self, tries: int) -> float:
        longest = min(FIRST_PAUSE_S * 2.0 ** (tries - 1), MAX_PAUSE_S)
        return longest * self._random.uniform(0.5, 1.0)

    def _failed(self, problem: Problem, tries: str) -> CallFailed:
        message = f"{self._model} at {self._server.base_url}: {problem.message}{tries}"
        return CallFailed(replace(problem, message=message))


def _not_understood(error: Exception, server: Server, sent: Mapping[str, Json]) -> str | None:
    """The key of a request that a refusal is about, if the request can do without it."""
    if not isinstance(error, openai.APIStatusError) or error.status_code not in (400, 422):
        return None
    words = f"{said(error, server)} {error.param or ''}".lower()
    return next((key for key, names in OPTIONAL.items() if key in sent and any(name in words for name in names)), None)
