"""The completer of any OpenAI-compatible endpoint: a provider's, or one of your own.

Only text comes back, so turns have no token ids, and the length that the server counted. What
the endpoint does wrong (limits, errors, silence) is retried, then becomes a `Failure`: it says
nothing about the model, and is never a score. Needs the extra `graders`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from strop.endpoints.chat import ChatEndpoint, Retries
from strop.endpoints.problems import CallFailed
from strop.endpoints.replies import ChatReply, Choice
from strop.endpoints.server import Server
from strop.endpoints.transport import guarded_http
from strop.errors import ConfigError, Unavailable
from strop.seeds import derive_seed
from strop.text import text_turn
from strop.types import Context, Failure, Json, Message, SamplingParams, StopReason, Turn

CALL_SECONDS = 900.0
"""For one call with all its tries: a server that sends a byte now and then is cut off too."""
MAX_FAILED_CALLS = 20
"""After so many calls in a row without any answer, the endpoint is taken to be down."""
_MAX_STOPS = 4
"""OpenAI takes no more; the text is cut at the others here."""
_FATAL = frozenset({"quota", "credentials", "not_found", "redirect", "address"})
"""Causes that stay until somebody changes a setting."""
_PARAMS = {"credentials": "api_key_env", "not_found": "model"}


@asynccontextmanager
async def open_endpoint(
    server: Server, model: str, concurrency: int, guarded: bool
) -> AsyncIterator[EndpointCompleter]:
    """A completer for one model, closed behind the block. `guarded` is for addresses that somebody
    else wrote: some are refused then, and proxies are not used."""
    http = guarded_http() if guarded else None
    async with ChatEndpoint(server, model, Retries(CALL_SECONDS), http) as endpoint:
        yield EndpointCompleter(endpoint, concurrency)


class EndpointCompleter:
    """A `Completer` over chat completions of one model. The endpoint is closed by whoever opened it."""

    def __init__(self, endpoint: ChatEndpoint, concurrency: int = 16) -> None:
        """At most `concurrency` calls are under way at a time."""
        self._endpoint = endpoint
        self._slots = asyncio.Semaphore(concurrency)
        self._several = True
        self._failed_in_a_row = 0

    async def complete(self, context: Context, count: int, params: SamplingParams) -> list[Turn | Failure]:
        """`count` next turns, or failures for those that did not come.

        Raises ConfigError where the endpoint refuses key or model, and Unavailable after many
        calls without any answer.
        """
        found = await self._turns(context, count, params)
        # A server that refuses a conversation is there.
        down = [entry for entry in found if isinstance(entry, Failure) and entry.cause != "refused"]
        self._failed_in_a_row = self._failed_in_a_row + 1 if len(down) == len(found) else 0
        if self._failed_in_a_row >= MAX_FAILED_CALLS:
            raise Unavailable(f"{MAX_FAILED_CALLS} calls in a row had no answer; the last: {down[-1].message}")
        return found

    async def _turns(self, context: Context, count: int, params: SamplingParams) -> list[Turn | Failure]:
        """In one call where the server can, else in one call each. Some ignore `n`, some refuse it."""
        found: list[Turn | Failure] = []
        if count > 1 and self._several:
            called = await self._call(context, count, params)
            if isinstance(called, Failure) and called.cause != "refused":
                return [called] * count
            found += [] if isinstance(called, Failure) else called[:count]
        missing = range(len(found), count)
        single = await asyncio.gather(*(self._one(context, params, index) for index in missing))
        if any(isinstance(entry, Turn) for entry in single):
            self._several = False
        return [*found, *single]

    async def _one(self, context: Context, params: SamplingParams, index: int) -> Turn | Failure:
        called = await self._call(context, 1, replace(params, seed=derive_seed(params.seed, index)))
        return called if isinstance(called, Failure) else called[0]

    async def _call(self, context: Context, count: int, params: SamplingParams) -> list[Turn | Failure] | Failure:
        async with self._slots:
            started = time.perf_counter()
            try:
                reply = await self._endpoint.complete(_body(context, count, params))
            except CallFailed as failed:
                problem = failed.problem
                if problem.cause in _FATAL:
                    raise ConfigError(problem.message, param=_PARAMS.get(problem.cause, "base_url")) from None
                return Failure(problem.cause, problem.message)
            return _turns_of(reply, time.perf_counter() - started, params.stop)


def _body(context: Context, count: int, params: SamplingParams) -> dict[str, Json]:
    """The request, but for the model. Keys that a server does not know are left out by `ChatEndpoint`."""
    body: dict[str, Any] = {
        "messages": [message.as_dict() for message in context.messages],
        "temperature": params.temperature,
        "max_completion_tokens": params.max_tokens,
        "seed": params.seed % 2**31,
    }
    optional = {
        "n": count if count > 1 else None,
        "top_p": params.top_p if params.top_p < 1 else None,
        "stop": list(params.stop[:_MAX_STOPS]) or None,
        "tools": list(context.tools) or None,
    }
    return body | {name: value for name, value in optional.items() if value is not None}


def _turns_of(reply: ChatReply, seconds: float, stop: Sequence[str]) -> list[Turn | Failure]:
    lengths = _shares(reply.usage.completion_tokens, [len(choice.text) for choice in reply.choices])
    return [_turn(choice, length, seconds, stop) for choice, length in zip(reply.choices, lengths, strict=True)]


def _turn(choice: Choice, length: int, seconds: float, stop: Sequence[str]) -> Turn | Failure:
    if choice.finish_reason == "content_filter":
        return Failure("content_filter", "the endpoint's filter cut the answer off")
    reason = StopReason.LENGTH if choice.finish_reason == "length" else StopReason.STOP
    message = Message("assistant", choice.text or choice.refusal, choice.tool_calls)
    return text_turn(message, reason, length, seconds, stop)


def _shares(total: int, sizes: Sequence[int]) -> list[int]:
    """A server counts the tokens of all choices together: split by the length of their texts."""
    weights = [size + 1 for size in sizes]
    ends = [round(total * sum(weights[: place + 1]) / sum(weights)) for place in range(len(weights))]
    return [end - start for start, end in zip([0, *ends], ends, strict=False)]
