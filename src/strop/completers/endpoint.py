"""The completer of any OpenAI-compatible endpoint: a provider's, or one of your own.

Only text comes back, so turns have no token ids, and the length that the server counted. What
the endpoint does wrong (limits, errors, silence) is retried, then becomes a `Failure`: it says
nothing about the model, and is never a score.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from strop.envs.endpoint import reason, said
from strop.errors import ConfigError, StropError, Unavailable
from strop.seeds import derive_seed
from strop.text import text_turn
from strop.types import Context, Failure, Message, SamplingParams, StopReason, ToolCall, Turn

try:
    import openai
except ImportError:  # an extra: `open_client` says so
    openai = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from openai import AsyncOpenAI
    from openai.types.chat import ChatCompletion

CALL_TIMEOUT_S = 900.0
"""One call with all its retries: a server that drips is cut off too."""
MAX_FAILED_CALLS = 20
"""After so many calls in a row without any answer, the endpoint is taken to be down."""
_MAX_STOPS = 4
"""OpenAI takes no more; what is over is cut off here."""


class EndpointCompleter:
    """A `Completer` over chat completions of one model. Close the client when done."""

    def __init__(self, client: AsyncOpenAI, model: str, concurrency: int = 16) -> None:
        """At most `concurrency` calls are under way at a time."""
        self._client = client
        self._model = model
        self._slots = asyncio.Semaphore(concurrency)
        self._form = _Form()
        self._several = True
        self._failed_in_a_row = 0

    async def complete(self, context: Context, count: int, params: SamplingParams) -> list[Turn | Failure]:
        """`count` next turns, or failures for those that did not come.

        Raises ConfigError where the endpoint refuses key or model, and Unavailable after many
        calls without any answer.
        """
        found = await self._answers(context, count, params)
        # A server that refuses a conversation is there.
        down = [entry for entry in found if isinstance(entry, Failure) and entry.cause != "refused"]
        self._failed_in_a_row = self._failed_in_a_row + 1 if len(down) == len(found) else 0
        if self._failed_in_a_row >= MAX_FAILED_CALLS:
            raise Unavailable(f"{MAX_FAILED_CALLS} calls in a row had no answer; the last: {down[-1].message}")
        return [_turn_of(entry, params.stop) for entry in found]

    async def _answers(self, context: Context, count: int, params: SamplingParams) -> list[_Answer | Failure]:
        """In one call where the server can, else in one call each. Some ignore `n`, some refuse it."""
        found: list[_Answer | Failure] = []
        if count > 1 and self._several:
            try:
                found += (await self._call(context, count, params))[:count]
            except _Failed as failed:
                if not failed.refused:
                    return [failed.failure] * count
        missing = range(len(found), count)
        single = await asyncio.gather(*(self._one(context, params, index) for index in missing))
        if any(isinstance(entry, _Answer) for entry in single):
            self._several = False
        return [*found, *single]

    async def _one(self, context: Context, params: SamplingParams, index: int) -> _Answer | Failure:
        try:
            return (await self._call(context, 1, replace(params, seed=derive_seed(params.seed, index))))[0]
        except _Failed as failed:
            return failed.failure

    async def _call(self, context: Context, count: int, params: SamplingParams) -> list[_Answer]:
        """The answers of one call, at least one. Raises _Failed."""
        while True:
            form = self._form
            async with self._slots:
                started = time.perf_counter()
                try:
                    async with asyncio.timeout(CALL_TIMEOUT_S):
                        made = await self._client.chat.completions.create(
                            **form.body(self._model, context, count, params)
                        )
                    return _read(made, time.perf_counter() - started)
                except openai.APIStatusError as error:
                    other = form.instead(said(self._client, error)) if error.status_code in (400, 422) else None
                    if other is None:
                        raise self._failed(error) from None
                    self._form = other
                except TimeoutError:
                    raise _Failed(Failure("timeout", f"no answer within {CALL_TIMEOUT_S:.0f} s")) from None
                except StropError:
                    raise  # an address that is out of bounds
                except Exception as error:  # of the connection, of the body: httpx, json, pydantic
                    if isinstance(error.__cause__, StropError):
                        raise error.__cause__ from None
                    cause = "connection" if isinstance(error, openai.APIConnectionError) else "response"
                    raise _Failed(Failure(cause, reason(self._client, error))) from None

    def _failed(self, error: openai.APIStatusError) -> Exception:
        """What a status means: for this call, or for the whole evaluation."""
        status = error.status_code
        answer = f"{self._client.base_url} answered {status}: {said(self._client, error)}"
        if status in (401, 403):
            return ConfigError(f"{answer}\nCheck the key: api_key_env names the variable that holds it", param="model")
        if status == 404 or status < 400:  # a redirect is not followed
            return ConfigError(f"{answer}\nCheck the model's name, {self._model!r}, and base_url", param="model")
        cause = "rate_limit" if status == 429 else "refused" if status < 500 else "server"
        return _Failed(Failure(cause, answer), refused=status in (400, 422))


@dataclass(frozen=True)
class _Form:
    """How a server wants to be asked: learnt from what it refuses."""

    limit: str = "max_completion_tokens"
    seeded: bool = True

    def body(self, model: str, context: Context, count: int, params: SamplingParams) -> dict[str, Any]:
        """Arguments of the call."""
        body: dict[str, Any] = {
            "model": model,
            "messages": [message.as_dict() for message in context.messages],
            "temperature": params.temperature,
            self.limit: params.max_tokens,
        }
        optional = {
            "n": count if count > 1 else None,
            "seed": params.seed % 2**31 if self.seeded else None,
            "top_p": params.top_p if params.top_p < 1 else None,
            "stop": list(params.stop[:_MAX_STOPS]) or None,
            "tools": list(context.tools) or None,
        }
        return body | {name: value for name, value in optional.items() if value is not None}

    def instead(self, complaint: str) -> _Form | None:
        """Another form after a refusal; None where the refusal is about something else."""
        if self.limit in complaint and self.limit != "max_tokens":
            return replace(self, limit="max_tokens")
        if "seed" in complaint and self.seeded:
            return replace(self, seeded=False)
        return None


class _Failed(Exception):
    """A call that brought no answer."""

    def __init__(self, failure: Failure, refused: bool = False) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.refused = refused
        """The request itself was refused: another may not be."""


@dataclass(frozen=True)
class _Answer:
    """One choice of a response."""

    message: Message
    finish: str
    tokens: int
    seconds: float


def _read(made: ChatCompletion, seconds: float) -> list[_Answer]:
    """The choices of a response. Raises _Failed for one that has none, such as a page of HTML."""
    choices = getattr(made, "choices", None)
    messages = [choice.message for choice in choices or () if getattr(choice, "message", None) is not None]
    if not choices or len(messages) != len(choices):
        raise _Failed(Failure("response", "the response is no chat completion: it has no choices"))
    turns = [_message(message) for message in messages]
    usage = getattr(made, "usage", None)
    tokens = _shares(getattr(usage, "completion_tokens", None) or 0, [len(turn.content) for turn in turns])
    return [
        _Answer(turn, choice.finish_reason or "stop", count, seconds)
        for turn, choice, count in zip(turns, choices, tokens, strict=True)
    ]


def _message(message: Any) -> Message:
    calls = tuple(
        ToolCall(*(_whole(part) for part in (call.id, call.function.name, call.function.arguments)))
        for call in message.tool_calls or ()
        if getattr(call, "function", None) is not None
    )
    return Message("assistant", _whole(message.content or getattr(message, "refusal", None)), calls)


def _whole(text: str | None) -> str:
    """Without halves of surrogate pairs: JSON can say them, files cannot."""
    return (text or "").encode("utf-8", "replace").decode()


def _shares(total: int, sizes: Sequence[int]) -> list[int]:
    """A server counts the tokens of all choices together: split by the length of their texts."""
    weights = [size + 1 for size in sizes]
    ends = [round(total * sum(weights[: place + 1]) / sum(weights)) for place in range(len(weights))]
    return [end - start for start, end in zip([0, *ends], ends, strict=False)]


def _turn_of(found: _Answer | Failure, stop: Sequence[str]) -> Turn | Failure:
    if isinstance(found, Failure):
        return found
    if found.finish == "content_filter":
        return Failure("content_filter", "the endpoint's filter cut the answer off")
    reason = StopReason.LENGTH if found.finish == "length" else StopReason.STOP
    return text_turn(found.message, reason, found.tokens, found.seconds, stop)
