"""`score_model` and `label_model`: a model reads the answer and judges it.

Needs the extra `graders`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import math
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, Protocol

from strop.endpoints.chat import ChatEndpoint, Retries
from strop.endpoints.problems import CallFailed
from strop.endpoints.replies import ChatReply, Usage
from strop.endpoints.transport import FOR_OPENAI, SENT, guarded_http
from strop.rewards.graders.base import Grade, Settings, Values, absent
from strop.rewards.graders.judge_server import judge_server
from strop.rewards.graders.shapes import Judge, LabelModel, ScoreModel
from strop.rewards.graders.template import Absent
from strop.types import Failure, Json

ASKS = 2
"""Of a judge whose answer cannot be read; another draw may do better."""
LOG_CHARS = 4_000
REASON_CHARS = 300

_STEPS: dict[str, Json] = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {"description": {"type": "string"}, "conclusion": {"type": "string"}},
        "required": ["description", "conclusion"],
        "additionalProperties": False,
    },
}
_THOUGHT = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)
_FENCED = re.compile(r"```(?:json)?[ \t]*\n(?P<inside>[^`]*)```", re.IGNORECASE)


class Unreadable(ValueError):
    """An answer that is no verdict; the message says what is wrong with it."""


class Verdict(Protocol):
    """What is asked of a judge, and what its answer is worth."""

    name: str
    lowest: float
    schema: dict[str, Json]
    words: str
    """The schema as a sentence: not every server can hold a model to it, and the model should know why."""

    def value(self, text: str) -> float:
        """Raises Unreadable."""


class Score:
    """A number, moved into a range."""

    name = "score"

    def __init__(self, low: float, high: float) -> None:
        self.lowest = low
        self._high = high
        self.schema = _object({"steps": _STEPS, "result": {"type": "number"}})
        self.words = _words(f'"result": a number from {low:g} to {high:g}')

    def value(self, text: str) -> float:
        """The result in an object, or just a number."""
        found = parse_answer(text)
        result = found.get("result") if isinstance(found, dict) else found
        if isinstance(result, bool) or not isinstance(result, int | float):
            raise Unreadable(f"its result is {json.dumps(result)[:60]}, no number")
        if isinstance(result, float) and not math.isfinite(result):
            raise Unreadable("its result is too large a number")
        # An integer may be too large for a float; the range is not.
        return float(min(max(result, self.lowest), self._high))


class Label:
    """One of several labels: 1 if it is a passing one."""

    name = "label"
    lowest = 0.0

    def __init__(self, labels: Sequence[str], passing: frozenset[str]) -> None:
        self._labels = labels
        self._passing = passing
        self.schema = _object({"steps": _STEPS, "label": {"type": "string", "enum": list(labels)}})
        self.words = _words(f'"label": one of {", ".join(map(json.dumps, labels))}')

    def value(self, text: str) -> float:
        """The label in an object, or just the label."""
        label: Json = without_thoughts(text)
        if label not in self._labels:
            found = parse_answer(text)
            label = found.get("label") if isinstance(found, dict) else found
        if label not in self._labels:
            raise Unreadable(f"its label is {json.dumps(label)[:60]}, none of {', '.join(self._labels)}")
        return float(label in self._passing)


class _ModelPart:
    """Renders the messages, asks, and reads the verdict."""

    def __init__(self, judge: Judge, verdict: Verdict, settings: Settings) -> None:
        self._judge = judge
        self._verdict = verdict
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
            return absent(error, self._verdict.lowest)
        shape = {"name": self._verdict.name, "strict": True, "schema": self._verdict.schema}
        body = {
            "messages": _with_words(messages, self._verdict.words),
            "response_format": {"type": "json_schema", "json_schema": shape},
            **self._judge.sampling,
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
            return Grade(self._verdict.value(choice.text))
        except Unreadable as error:
            why = f"{self._judge.model}: its answer cannot be used: {error}"
            if choice.finish_reason == "length":
                why += "; it was cut off, so give it more max_completion_tokens"
            return Grade(failure=Failure("parse", why, choice.text[:LOG_CHARS]))


class ScorePart(_ModelPart):
    """`score_model`."""

    def __init__(self, grader: ScoreModel, settings: Settings) -> None:
        super().__init__(grader.judge, Score(grader.low, grader.high), settings)


class LabelPart(_ModelPart):
    """`label_model`."""

    def __init__(self, grader: LabelModel, settings: Settings) -> None:
        super().__init__(grader.judge, Label(grader.labels, grader.passing), settings)


def parse_answer(text: str) -> Json:
    """The JSON value that an answer is, thoughts before it and a fence around it aside.

    It must be all of the answer: a judge may quote the JSON that a candidate wrote, and picking
    one of two would let the candidate score itself. Raises Unreadable.
    """
    text = without_thoughts(text)
    fenced = _FENCED.fullmatch(text)
    try:
        return json.loads(fenced["inside"] if fenced else text, object_pairs_hook=_unique, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        if isinstance(error, Unreadable):
            raise
        raise Unreadable("it is empty" if not text else "it is not JSON and nothing else") from None


def without_thoughts(text: str) -> str:
    """The answer without what the judge thought aloud before it."""
    return _THOUGHT.sub("", text, count=1).strip()


def _unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise Unreadable("a key stands in it twice")
    return found


def _no_number(name: str) -> NoReturn:
    raise Unreadable(f"{name} is no number")


def _with_words(messages: list[dict[str, Any]], words: str) -> list[dict[str, Any]]:
    """The messages with a sentence about the form; many models take a system message only at the start."""
    first = messages[0]
    if first["role"] != "system":
        return [{"role": "system", "content": words}, *messages]
    if isinstance(first["content"], str):
        return [{**first, "content": f"{first['content']}\n\n{words}"}, *messages[1:]]
    return [{**first, "content": [*first["content"], {"type": "text", "text": words}]}, *messages[1:]]


def _object(properties: Mapping[str, Json]) -> dict[str, Json]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


def _words(result: str) -> str:
    return (
        "Reply with one JSON object and nothing else, with two keys: "
        '"steps": your reasoning, a list of {"description": …, "conclusion": …}, then ' + result + "."
    )
