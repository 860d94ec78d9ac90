"""The completer of a deployment: asks the server's model process through its socket."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from strop.errors import Conflict, NotFound, StropError, Unavailable
from strop.serve.client import EngineClient
from strop.serve.wire import ChatRequest, Delta, Finished
from strop.text import text_turn
from strop.types import Context, Failure, Json, Message, SamplingParams, StopReason, Turn

PAUSES_S = (0.5, 1, 2, 4, 8, 16, 30)
"""Waits between tries while the model process is down or its queue is full: it is started again."""


class DeployedCompleter:
    """A `Completer` over a model that the model process serves. Only text comes back."""

    def __init__(
        self,
        client: EngineClient,
        name: str,
        source: str,
        template: Mapping[str, Json],
        concurrency: int = 16,
        pauses: Sequence[float] = PAUSES_S,
    ) -> None:
        """`source` is loaded as `name` when it is not there; at most `concurrency` rows are asked at a time."""
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
        """`count` next turns, or failures where the process gave none."""
        request = ChatRequest(
            id=context.where,
            model=self._name,
            messages=tuple(message.as_dict() for message in context.messages),
            tools=context.tools,
            template=self._template,
            n=count,
            max_tokens=params.max_tokens,
            temperature=params.temperature,
            top_p=params.top_p,
            stop=params.stop,
            seed=params.seed,
        )
        async with self._slots:
            started = time.perf_counter()
            try:
                answers = await self._patiently(request)
            except StropError as error:
                return [Failure("server" if isinstance(error, Unavailable) else "refused", error.message)] * count
            seconds = time.perf_counter() - started
        return [answer.turn(seconds, params.stop) for answer in answers]

    async def _patiently(self, request: ChatRequest) -> list[_Answer]:
        for pause in self._pauses:
            try:
                return await self._ask(request)
            except NotFound:  # unloaded, or the process was started anew
                await self.load()
            except Unavailable:
                await asyncio.sleep(pause)
        return await self._ask(request)

    async def _ask(self, request: ChatRequest) -> list[_Answer]:
        answers = [_Answer() for _ in range(request.n)]
        async for event in self._client.generate(request):
            if isinstance(event, Delta):
                answers[event.index].text += event.text
            elif isinstance(event, Finished):
                answers[event.index].end = event
        return answers


@dataclass
class _Answer:
    """One completion, while its pieces come in."""

    text: str = ""
    end: Finished | None = None

    def turn(self, seconds: float, stop: Sequence[str]) -> Turn:
        reason, tokens = (self.end.finish_reason, self.end.completion_tokens) if self.end else ("stop", 0)
        return text_turn(Message("assistant", self.text), StopReason(reason), tokens, seconds, stop)
