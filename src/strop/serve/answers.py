"""Answers in OpenAI's shapes, whole and in chunks, with token ids as vLLM names them."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from strop.serve.generate import (
    Alternative,
    Delta,
    Done,
    Event,
    Finished,
    FinishReason,
    GenerateRequest,
    Started,
    Token,
)

Json = dict[str, Any]


@dataclass
class _Growing:
    """One completion while its events come in."""

    text: list[str] = field(default_factory=list)
    tokens: list[Token] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    end: Finished | None = None


class Answer:
    """One request's events, shaped as chat completions."""

    object = "chat.completion"
    prefix = "chatcmpl"

    def __init__(self, request: GenerateRequest, usage: bool = False, continuous: bool = False) -> None:
        """`usage`: the last chunk says what the request took; `continuous`: every chunk does so far."""
        self._request = request
        self._usage, self._continuous = usage, continuous
        self._head: Json = {"created": int(time.time()), "model": request.model}
        self._head["id"] = f"{self.prefix}-{secrets.token_hex(12)}"
        self._growing = [_Growing() for _ in range(request.n)]
        self._prompt_ids: tuple[int, ...] = ()
        self._drawn = 0

    async def whole(self, events: AsyncGenerator[Event]) -> Json:
        """Wait for all completions."""
        async for event in events:
            match event:
                case Started(prompt_ids):
                    self._prompt_ids = prompt_ids
                case Delta():
                    growing = self._growing[event.index]
                    growing.text.append(event.text)
                    growing.tokens += event.tokens
                    growing.ids += event.ids
                case Finished():
                    self._growing[event.index].end = event
                case Done():
                    self._drawn = event.completion_tokens
        return self._finished()

    def chunks(self, event: Event) -> Iterator[Json]:
        """The chunks that tell of an event."""
        match event:
            case Started(prompt_ids):
                self._prompt_ids = prompt_ids
                yield from self._opening()
            case Delta():
                self._drawn += event.drawn
                yield self._chunk([self._delta(event)])
            case Finished():
                yield self._chunk([self._end(event)])
            case Done():
                if self._usage:
                    yield self._dressed({"choices": [], "usage": self._used()})

    def _finished(self) -> Json:
        choices = [self._choice(index, growing) for index, growing in enumerate(self._growing)]
        answer = {**self._head, "object": self.object, "choices": choices, "usage": self._used()}
        if self._request.token_ids:
            answer["prompt_token_ids"] = list(self._prompt_ids)
        return answer

    def _choice(self, index: int, growing: _Growing) -> Json:
        assert growing.end is not None
        message: Json = {"role": "assistant", "content": "".join(growing.text), "refusal": None}
        if growing.end.tool_calls:
            message["content"] = growing.end.content or None
            message["tool_calls"] = [call.as_dict() for call in growing.end.tool_calls]
        choice = {
            "index": index,
            "message": message,
            "finish_reason": growing.end.finish_reason,
            "logprobs": _chat_logprobs(growing.tokens) if self._request.logprobs else None,
        }
        return {**choice, "token_ids": growing.ids} if self._request.token_ids else choice

    def _opening(self) -> Iterator[Json]:
        """The first chunk of each answer: who speaks."""
        for index in range(self._request.n):
            chunk = self._chunk([_chat_chunk(index, {"role": "assistant", "content": ""})])
            yield {**chunk, "prompt_token_ids": list(self._prompt_ids)} if self._request.token_ids else chunk

    def _delta(self, event: Delta) -> Json:
        logprobs = _chat_logprobs(event.tokens) if self._request.logprobs else None
        choice = {**_chat_chunk(event.index, {"content": event.text}), "logprobs": logprobs}
        return {**choice, "token_ids": list(event.ids)} if self._request.token_ids else choice

    def _end(self, event: Finished) -> Json:
        calls = [{"index": number, **call.as_dict()} for number, call in enumerate(event.tool_calls)]
        return {
            **_chat_chunk(event.index, {"tool_calls": calls} if calls else {}),
            "finish_reason": event.finish_reason,
        }

    def _chunk(self, choices: list[Json]) -> Json:
        extra = {"usage": self._used() if self._continuous else None} if self._usage else {}
        return self._dressed({"choices": choices, **extra})

    def _dressed(self, chunk: Json) -> Json:
        return {**self._head, "object": f"{self.object}.chunk", **chunk}

    def _used(self) -> Json:
        prompt = len(self._prompt_ids)
        return {"prompt_tokens": prompt, "completion_tokens": self._drawn, "total_tokens": prompt + self._drawn}


class TextAnswer(Answer):
    """One request's events, shaped as text completions."""

    object = "text_completion"
    prefix = "cmpl"

    def _finished(self) -> Json:
        answer = super()._finished()
        answer.pop("prompt_token_ids", None)
        return answer

    def _choice(self, index: int, growing: _Growing) -> Json:
        assert growing.end is not None
        text = "".join(growing.text)
        return self._shaped(index, text, growing.tokens, growing.ids, growing.end.finish_reason)

    def _opening(self) -> Iterator[Json]:
        for index in range(self._request.n if self._request.token_ids else 0):
            yield self._chunk([self._shaped(index, "", (), (), None)])

    def _delta(self, event: Delta) -> Json:
        shaped = self._shaped(event.index, event.text, event.tokens, event.ids, None)
        shaped.pop("prompt_token_ids", None)
        return shaped

    def _end(self, event: Finished) -> Json:
        return {"index": event.index, "text": "", "logprobs": None, "finish_reason": event.finish_reason}

    def _dressed(self, chunk: Json) -> Json:
        return {**self._head, "object": self.object, **chunk}

    def _shaped(
        self, index: int, text: str, tokens: Sequence[Token], ids: Sequence[int], reason: FinishReason | None
    ) -> Json:
        logprobs = _text_logprobs(tokens) if self._request.logprobs else None
        choice: Json = {"index": index, "text": text, "logprobs": logprobs, "finish_reason": reason}
        if self._request.token_ids:
            choice |= {"token_ids": list(ids), "prompt_token_ids": list(self._prompt_ids)}
        return choice


def _chat_chunk(index: int, delta: Json) -> Json:
    return {"index": index, "delta": delta, "finish_reason": None, "logprobs": None}


def _chat_logprobs(tokens: Sequence[Token]) -> Json:
    content = [{**_described(token), "top_logprobs": [_described(other) for other in token.top]} for token in tokens]
    return {"content": content, "refusal": None}


def _described(token: Token | Alternative) -> Json:
    return {"token": token.text, "logprob": token.logprob, "bytes": list(token.bytes)}


def _text_logprobs(tokens: Sequence[Token]) -> Json:
    offsets = [0]
    for token in tokens:
        offsets.append(offsets[-1] + len(token.text))
    return {
        "tokens": [token.text for token in tokens],
        "token_logprobs": [token.logprob for token in tokens],
        "top_logprobs": [{other.text: other.logprob for other in token.top} for token in tokens],
        "text_offset": offsets[:-1],
    }
