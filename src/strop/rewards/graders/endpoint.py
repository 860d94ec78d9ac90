"""The server that a model grader asks: any with OpenAI's chat completions.

Needs the extra `graders`.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

import httpx2
import openai

from strop.errors import RewardError
from strop.rewards.graders.base import Settings, Usage
from strop.rewards.graders.messages import encodable
from strop.rewards.graders.shapes import Judge
from strop.rewards.graders.transport import CONNECT_TIMEOUT_S, GuardedTransport, UnwantedAnswer
from strop.rewards.urls import BlockedAddress, check_url
from strop.types import Failure, Json

OPENAI = "https://api.openai.com/v1"
TRIES = 8
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 8.0
SAID_CHARS = 300

SENT = frozenset({"accept", "authorization", "connection", "content-length", "content-type", "host", "user-agent"})
"""Headers; the client would add whatever $OPENAI_CUSTOM_HEADERS holds, and more about this machine."""
FOR_OPENAI = frozenset({"openai-organization", "openai-project"})


class Unanswered(Exception):
    """There is no answer, and asking again will not help in time."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class _Again(Exception):
    """Something that may pass; `pause` is what the server asks for, in seconds."""

    def __init__(self, why: str, pause: float | None = None) -> None:
        super().__init__(why)
        self.pause = pause


@dataclass(frozen=True)
class Question:
    """What a judge is asked."""

    messages: Sequence[Mapping[str, Json]]
    name: str
    """Name of the schema."""
    schema: Mapping[str, Json]
    """What its answer must look like, as JSON schema."""


@dataclass(frozen=True)
class Answer:
    """What a judge wrote."""

    text: str
    cut_off: bool
    """It ran into the limit on tokens."""
    usage: Usage
    model: str
    """As the server calls it."""


class Endpoint:
    """Asks one model. Tries again what may pass, within the time that the caller gives."""

    def __init__(self, judge: Judge, settings: Settings) -> None:
        self._judge = judge
        self._settings = settings
        self._address = ""
        self._key_name = ""
        self._client: openai.AsyncOpenAI | None = None
        self._structured = True
        self._random = random.Random()  # not the global one: training is seeded

    def open(self) -> None:
        """Connects to nothing yet. Raises RewardError for a URL out of bounds or a key that is not there."""
        self._address, self._key_name = _address(self._judge, self._settings)
        try:
            check_url(self._address, self._settings.allow_private, "base_url")
        except BlockedAddress as error:
            raise self._refusal(error.message, "rewards.source") from None
        key = self._key()
        sent = SENT if self._judge.base_url else SENT | FOR_OPENAI
        http = httpx2.AsyncClient(
            transport=GuardedTransport(self._settings.allow_private, sent if key else sent - {"authorization"}),
            follow_redirects=False,  # the key would go along
            trust_env=False,
            timeout=httpx2.Timeout(None, connect=CONNECT_TIMEOUT_S),
        )
        self._client = openai.AsyncOpenAI(
            api_key=key or "none", base_url=self._address, max_retries=0, http_client=http, timeout=http.timeout
        )

    async def ask(self, question: Question, deadline: float) -> Answer:
        """The answer, if there is one before the deadline on the monotonic clock. Raises Unanswered."""
        last = _Again("there was no time to ask")
        tries = 0
        while tries < TRIES and time.monotonic() < deadline:
            try:
                return await self._try(question, deadline)
            except _Again as again:
                last = again
            tries += 1
            pause = self._pause(tries) if last.pause is None else last.pause
            # A try in the last moment could only fail, and hide why the one before it did.
            if time.monotonic() + pause > deadline - self._settings.config.timeout_s / 10:
                break
            await asyncio.sleep(pause)
        raise self._unanswered(f"{last} ({tries} {'try' if tries == 1 else 'tries'})")

    async def close(self) -> None:
        """Close all connections."""
        if self._client is not None:
            await self._client.close()

    async def _try(self, question: Question, deadline: float) -> Answer:
        """Half of the whole time is for one try, so that a server that hangs is asked twice."""
        seconds = min(deadline - time.monotonic(), self._settings.config.timeout_s / 2)
        try:
            async with asyncio.timeout(seconds):
                return self._answer(await self._send(question))
        except TimeoutError:
            raise _Again(f"no answer within {seconds:.2g} s", pause=0.0) from None

    async def _send(self, question: Question) -> bytes:
        assert self._client is not None
        extra: dict[str, Any] = dict(self._judge.sampling)
        if self._structured:
            shape = {"name": question.name, "strict": True, "schema": question.schema}
            extra["response_format"] = {"type": "json_schema", "json_schema": shape}
        messages: Any = question.messages
        try:
            reply = await self._client.chat.completions.with_raw_response.create(
                model=self._judge.model, messages=messages, **extra
            )
            content: bytes = reply.http_response.content
            return content
        except openai.APIStatusError as error:
            raise self._refused(error) from None
        except openai.APIConnectionError as error:
            raise self._unreachable(error.__cause__ or error) from None
        except (BlockedAddress, UnwantedAnswer, httpx2.HTTPError) as error:
            raise self._unreachable(error) from None

    def _refused(self, error: openai.APIStatusError) -> Exception:
        """What an HTTP status means: another try, or what setting to look at."""
        status, said = error.status_code, _said(error)
        if status in (408, 409, 429) or status >= 500:
            if error.code == "insufficient_quota":
                return self._unanswered(f"{status}: {said}; the account has no credit left")
            return _Again(f"{status}: {said}", _retry_after(error.response.headers))
        if status in (400, 422) and self._structured and _is_about_format(error):
            self._structured = False  # Not every server can hold a model to a schema; it is asked in words too.
            return _Again(f"{status}: {said}", pause=0.0)
        if status < 400:
            return self._unanswered(f"{status}: a redirect, which is not followed; write the final address as base_url")
        if status in (401, 403):
            key = f"the key in ${self._key_name}" if self._key_name else "a request without a key; set api_key_env"
            return self._unanswered(f"{status}: it refuses {key}: {said}")
        if status == 404:
            return self._unanswered(f"404: check the names in model and base_url: {said}")
        return self._unanswered(f"{status}: {said}")

    def _unreachable(self, error: BaseException) -> Exception:
        if isinstance(error, BlockedAddress):
            return self._unanswered(f"base_url is refused: {error.message}")
        if isinstance(error, UnwantedAnswer):
            return self._unanswered(f"it answers with {error}")
        return _Again(f"no connection: {type(error).__name__}: {error}"[:SAID_CHARS])

    def _answer(self, body: bytes) -> Answer:
        """The completion in a body. Raises _Again for what is none, Unanswered for a refusal."""
        try:
            completion = json.loads(body)
            choice = completion["choices"][0]
            message, reason = choice["message"], choice.get("finish_reason")
            text, refusal = message.get("content") or "", message.get("refusal")
        except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
            start = body[:60].decode(errors="replace")
            raise _Again(f"what it answers is no chat completion: {start!r}") from None
        if refusal or reason == "content_filter":
            why = encodable(str(refusal or "its content filter stopped it"))
            raise Unanswered(Failure("refusal", f"{self._judge.model} refuses to judge: {why}"[:SAID_CHARS]))
        model = completion.get("model")
        return Answer(
            encodable(text if isinstance(text, str) else json.dumps(text)),
            reason == "length",
            _usage(completion.get("usage")),
            model if isinstance(model, str) and model else self._judge.model,
        )

    def _pause(self, tries: int) -> float:
        longest = min(FIRST_PAUSE_S * 2.0 ** (tries - 1), LONGEST_PAUSE_S)
        return longest * self._random.uniform(0.5, 1.0)

    def _key(self) -> str:
        """The key, or nothing. The value is in no message."""
        if not self._key_name:
            return ""
        if self._key_name not in self._settings.variables:
            why = f"the judge {self._judge.model} needs ${self._key_name}, which the reward's `env` does not list"
            raise self._refusal(f'{why}; add env = ["{self._key_name}"]', "rewards.env")
        key = self._settings.variables[self._key_name].strip()
        if not key or not key.isascii() or not key.isprintable():
            raise self._refusal(f"${self._key_name} holds nothing that can be sent as a key", "rewards.env")
        return key

    def _refusal(self, why: str, param: str) -> RewardError:
        return RewardError(f"reward {self._settings.config.name!r}: {why}", param=param)

    def _unanswered(self, why: str) -> Unanswered:
        return Unanswered(Failure("judge", f"{self._judge.model} at {self._address}: {why}"))


def _address(judge: Judge, settings: Settings) -> tuple[str, str]:
    """Base URL, and the name of the variable with the key or nothing.

    A key goes only to the server that it was named for: $OPENAI_API_KEY never to a `base_url`.
    """
    if judge.base_url:
        return judge.base_url, judge.api_key_env or ""
    url = settings.variables.get("OPENAI_BASE_URL") or os.environ.get("OPENAI_BASE_URL") or OPENAI
    if judge.api_key_env:
        return url, judge.api_key_env
    return url, "OPENAI_API_KEY" if "OPENAI_API_KEY" in settings.variables or url == OPENAI else ""


def _said(error: openai.APIStatusError) -> str:
    body = error.body
    message = body.get("message") if isinstance(body, dict) else None
    return encodable(str(message or error.message))[:SAID_CHARS]


def _is_about_format(error: openai.APIStatusError) -> bool:
    said = f"{_said(error)} {error.param or ''}".lower()
    return any(word in said for word in ("response_format", "json_schema", "structured output", "guided"))


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that a server asks to wait, from either form of the header."""
    text = headers.get("retry-after", "").strip()
    try:
        if text.replace(".", "", 1).isdecimal():
            return float(text)
        return max(parsedate_to_datetime(text).timestamp() - time.time(), 0.0)
    except (ValueError, OverflowError):
        return None


def _usage(given: Json) -> Usage:
    """Token counts; 0 where a server does not tell."""
    usage = given if isinstance(given, dict) else {}
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else 0
    counts = (usage.get("prompt_tokens"), usage.get("completion_tokens"), cached)
    return Usage(*(count if type(count) is int and count > 0 else 0 for count in counts))
