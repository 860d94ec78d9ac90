"""Rows answered by a deployment: asked through the socket of the server's model process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from strop.envs.text_only import text_rollout, unanswered
from strop.errors import Conflict, NotFound, StropError, Unavailable
from strop.serve.client import CHAT, EngineClient
from strop.types import Failure, Group, Json, Message, Rollout, Row, SamplingParams, StopReason, ToolCall

PAUSES_S = (0.5, 1, 2, 4, 8, 16, 30)
"""Waits between tries while the model process is down or its queue is full: it is started again."""


class DeployedEnvironment:
    """An `Environment` over a model that the model process serves. Only text comes back."""

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

    async def play(self, row: Row, count: int, params: SamplingParams) -> Group:
        """`count` answers to a row, not scored yet, or failures where the process gave none."""
        request = {
            "model": self._name,
            "messages": [message.as_dict() for message in row.messages],
            "tools": list(row.tools) or None,
            "chat_template_kwargs": dict(self._template),
            "n": count,
            "max_tokens": params.max_tokens,
            "temperature": params.temperature,
            "top_p": params.top_p,
            "stop": list(params.stop) or None,
            "seed": params.seed,
            "return_token_ids": True,
        }
        async with self._slots:
            started = time.perf_counter()
            try:
                answer = await self._patiently(request)
            except StropError as error:
                failure = Failure("server" if isinstance(error, Unavailable) else "refused", error.message)
                return Group(row, (), tuple(unanswered(index, failure) for index in range(count)))
            seconds = time.perf_counter() - started
        rollouts = [_rollout(choice, seconds, params.stop) for choice in answer["choices"]]
        return Group(row, (), tuple(rollouts))

    async def _patiently(self, request: dict[str, Json]) -> dict[str, Json]:
        for pause in self._pauses:
            try:
                return await self._client.complete(CHAT, request)
            except NotFound:  # unloaded, or the process was started again
                await self.load()
            except Unavailable:
                await asyncio.sleep(pause)
        return await self._client.complete(CHAT, request)


def _rollout(choice: dict[str, Any], seconds: float, stop: Sequence[str]) -> Rollout:
    form = choice["message"]
    calls = tuple(
        ToolCall(call["id"], call["function"]["name"], call["function"]["arguments"])
        for call in form.get("tool_calls") or ()
    )
    message = Message("assistant", form["content"] or "", calls)
    reason = StopReason.LENGTH if choice["finish_reason"] == "length" else StopReason.STOP
    return text_rollout(choice["index"], message, reason, len(choice["token_ids"]), seconds, stop)
