"""The completer of a deployment: asks the server's model process, which tells exact ids."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from strop.errors import Conflict, ContextOverflow, NotFound, StropError, Unavailable
from strop.serve.client import CHAT, EngineClient
from strop.types import Context, Failure, Json, Message, SamplingParams, StopReason, ToolCall, Turn, tokens_after

PAUSES_S = (0.5, 1, 2, 4, 8, 16, 30)
"""Waits between tries while the model process is down or its queue is full: it is started again."""


@asynccontextmanager
async def open_deployment(
    socket: Path, name: str, source: str, template: Mapping[str, Json]
) -> AsyncIterator[DeployedCompleter]:
    """The completer of a deployment, with its model loaded: see `DeployedCompleter.load`."""
    client = EngineClient(socket)
    try:
        completer = DeployedCompleter(client, name, source, template)
        await completer.load()
        yield completer
    finally:
        await client.close()


class DeployedCompleter:
    """A `Completer` over a model of the model process, with ids and log-probabilities."""

    def __init__(
        self,
        client: EngineClient,
        name: str,
        source: str,
        template: Mapping[str, Json],
        concurrency: int = 16,
        pauses: Sequence[float] = PAUSES_S,
    ) -> None:
        """`source` is loaded as `name` when it is not there; at most `concurrency` contexts are asked at a time."""
        self._client = client
        self._name = name
        self._source = source
        self._template = template
        self._slots = asyncio.Semaphore(concurrency)
        self._pauses = pauses

    async def load(self) -> None:
        """Have the model in memory. Raises ModelError, or Unavailable where the process stays down.

        Whatever the deployment has loaded under its name is what it answers with, and is measured.
        """
        with suppress(Conflict):
            for pause in self._pauses:
                try:
                    await self._client.load(self._name, self._source)
                    return
                except Unavailable:
                    await asyncio.sleep(pause)
            await self._client.load(self._name, self._source)

    async def complete(self, context: Context, count: int, params: SamplingParams) -> list[Turn | Failure]:
        """`count` next turns, or failures where the process gave none.

        A completion gets fewer tokens where the model's positions leave fewer. Raises
        ContextOverflow where they leave none.
        """
        async with self._slots:
            started = time.perf_counter()
            try:
                answer = await self._fitted(self._body(context, count, params))
            except ContextOverflow:
                raise
            except StropError as error:
                return [Failure("server" if isinstance(error, Unavailable) else "refused", error.message)] * count
            seconds = time.perf_counter() - started
        return [_turn(choice, answer["prompt_token_ids"], context, seconds) for choice in answer["choices"]]

    def _body(self, context: Context, count: int, params: SamplingParams) -> dict[str, Json]:
        return {
            "model": self._name,
            "messages": [message.as_dict() for message in context.messages],
            "tools": list(context.tools) or None,
            "chat_template_kwargs": dict(self._template),
            "n": count,
            "max_tokens": params.max_tokens,
            "temperature": params.temperature,
            "top_p": params.top_p,
            "stop": list(params.stop) or None,
            "seed": params.seed,
            "logprobs": True,
            "return_token_ids": True,
        }

    async def _fitted(self, body: dict[str, Json]) -> dict[str, Json]:
        try:
            return await self._patiently(body)
        except ContextOverflow:
            return await self._patiently({**body, "max_tokens": None})  # what the positions leave

    async def _patiently(self, body: dict[str, Json]) -> dict[str, Json]:
        for pause in self._pauses:
            try:
                return await self._client.complete(CHAT, body)
            except NotFound:  # unloaded, or the process was started again
                await self.load()
            except Unavailable:
                await asyncio.sleep(pause)
        return await self._client.complete(CHAT, body)


def _turn(choice: dict[str, Any], prompt_ids: Sequence[int], context: Context, seconds: float) -> Turn:
    form, ids = choice["message"], tuple(choice["token_ids"])
    calls = tuple(
        ToolCall(call["id"], call["function"]["name"], call["function"]["arguments"])
        for call in form.get("tool_calls") or ()
    )
    logprobs = tuple(token["logprob"] for token in choice["logprobs"]["content"])
    return Turn(
        message=Message("assistant", form["content"] or "", calls),
        stop_reason=StopReason.LENGTH if choice["finish_reason"] == "length" else StopReason.STOP,
        length=len(ids),
        tokens=tokens_after(context, tuple(prompt_ids), ids, logprobs),
        seconds=seconds,
    )
