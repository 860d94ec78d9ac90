"""Runs a model grader: renders the messages, asks the judge, reads the verdict.

Needs the extra `graders`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Mapping
from typing import Any

from strop.endpoints.chat import ChatEndpoint, Retries
from strop.endpoints.problems import CallFailed
from strop.endpoints.replies import ChatReply, Usage
from strop.endpoints.transport import FOR_OPENAI, SENT, guarded_http
from strop.rewards.graders.grade import Grade, Settings, Values, absent
from strop.rewards.graders.judge_answers import Unreadable
from strop.rewards.graders.judge_server import judge_server
from strop.rewards.graders.judges import Judge
from strop.rewards.graders.template import Absent
from strop.types import Failure, Json

ASKS = 2
"""Of a judge whose answer cannot be read; another draw may do better."""
LOG_CHARS = 4_000
REASON_CHARS = 300


class JudgePart:
    """A `Part` that asks one model. At most `max_concurrent` samples are judged at the same time."""

    def __init__(self, judge: Judge, settings: Settings) -> None:
        self._judge = judge
        self._settings = settings
        self._slots = asyncio.Semaphore(judge.max_concurrent)
        self._endpoint: ChatEndpoint | None = None

    async def start(self) -> None:
        """Connects to nothing yet. Raises RewardError if the URL is out of bounds or the key is missing."""
        self._endpoint = await asyncio.to_thread(self._open)  # It reads the certificates of the system.

    async def grade(self, sample: Values, item: Values, seed: int) -> Grade:
        """Grade one sample."""
        try:
            messages = [message.render(sample, item) for message in self._judge.input]
        except Absent as error:
            return absent(error, self._judge.lowest)
        shape = {"name": self._judge.schema_name, "strict": True, "schema": self._judge.answer_schema}
        body = {
            "messages": _with_words(messages, self._judge.answer_words),
            "response_format": {"type": "json_schema", "json_schema": shape},
            **self._judge.sampling_params.as_request(),
        }
        async with self._slots:
            started = time.monotonic()
            grade = await self._judged(body, started + self._settings.config.timeout_s)
            return dataclasses.replace(grade, seconds=time.monotonic() - started)

    async def close(self) -> None:
        """Close the connections."""
        if self._endpoint is not None:
            await self._endpoint.close()

    def _open(self) -> ChatEndpoint:
        server = judge_server(self._judge, self._settings)
        sent = SENT if self._judge.base_url else SENT | FOR_OPENAI
        http = guarded_http(self._settings.allow_private, sent if server.key else sent - {"authorization"})
        return ChatEndpoint(server, self._judge.model, Retries(self._settings.config.timeout_s), http)

    async def _judged(self, body: Mapping[str, Json], deadline: float) -> Grade:
        assert self._endpoint is not None
        usage, logs = Usage(), ""
        grade = Grade()
        for _ in range(ASKS):
            try:
                reply = await self._endpoint.complete(body, deadline)
            except CallFailed as failed:
                # What could not be read the first time remains the better reason.
                failure = Failure("judge", failed.problem.message)
                return grade if grade.failure else Grade(failure=failure, logs=logs, usage=usage)
            model, text = reply.model or self._judge.model, reply.choices[0].text
            usage += reply.usage
            logs += f"{model}: {text[:LOG_CHARS]}\n"
            grade = dataclasses.replace(self._read(reply), usage=usage, logs=logs, answered_by=model)
            if grade.value is not None or (grade.failure and grade.failure.cause == "refusal"):
                break
        return grade

    def _read(self, reply: ChatReply) -> Grade:
        choice = reply.choices[0]
        if choice.refusal or choice.finish_reason == "content_filter":
            reason = choice.refusal or "its content filter stopped it"
            return Grade(failure=Failure("refusal", f"{self._judge.model} refuses to judge: {reason}"[:REASON_CHARS]))
        try:
            return Grade(self._judge.verdict(choice.text))
        except Unreadable as error:
            why = f"{self._judge.model}: its answer cannot be used: {error}"
            if choice.finish_reason == "length":
                why += "; it was truncated, so raise max_completion_tokens"
            return Grade(failure=Failure("parse", why, choice.text[:LOG_CHARS]))


def _with_words(messages: list[dict[str, Any]], words: str) -> list[dict[str, Any]]:
    """The messages with a sentence about the form; many models take a system message only at the start."""
    first = messages[0]
    if first["role"] != "system":
        return [{"role": "system", "content": words}, *messages]
    if isinstance(first["content"], str):
        return [{**first, "content": f"{first['content']}\n\n{words}"}, *messages[1:]]
    return [{**first, "content": [*first["content"], {"type": "text", "text": words}]}, *messages[1:]]
