"""Answers of a model in OpenAI's shapes: whole, and in chunks."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass, field
from typing import Literal

from pydantic import BaseModel

from strop.serve.wire import Alternative, Delta, Done, Event, Finished, Token

FinishReason = Literal["stop", "length"]


class TopLogprob(BaseModel):
    """A token that could have been drawn."""

    token: str
    logprob: float
    bytes: list[int] | None


class TokenLogprob(TopLogprob):
    """A token of an answer."""

    top_logprobs: list[TopLogprob]


class Logprobs(BaseModel):
    """Log-probabilities of an answer or a chunk."""

    content: list[TokenLogprob] | None
    refusal: None = None


class Usage(BaseModel):
    """Tokens that a request took."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class AssistantMessage(BaseModel):
    """An answer."""

    role: Literal["assistant"] = "assistant"
    content: str
    refusal: None = None


class Choice(BaseModel):
    """One of `n` answers."""

    index: int
    message: AssistantMessage
    finish_reason: FinishReason
    logprobs: Logprobs | None = None


class ChatCompletion(BaseModel):
    """Whole answers to a chat request."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[Choice]
    usage: Usage


class ChoiceDelta(BaseModel):
    """What is new of an answer; keys without news are left out."""

    role: Literal["assistant"] = "assistant"
    content: str = ""


class ChunkChoice(BaseModel):
    """What is new of one of `n` answers."""

    index: int
    delta: ChoiceDelta
    finish_reason: FinishReason | None
    logprobs: Logprobs | None


class ChatCompletionChunk(BaseModel):
    """A piece of a streamed answer."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: Usage | None = None


@dataclass(frozen=True)
class Head:
    """What all chunks of an answer have in common."""

    id: str
    created: int
    model: str


@dataclass
class _Collected:
    """An answer that grows."""

    text: list[str] = field(default_factory=list)
    tokens: list[Token] = field(default_factory=list)
    finish_reason: FinishReason = "stop"


async def whole(events: AsyncGenerator[Event], head: Head, count: int, logprobs: bool) -> ChatCompletion:
    """Wait for all answers."""
    answers = [_Collected() for _ in range(count)]
    usage = Usage(prompt_tokens=0, completion_tokens=0, total_tokens=0)
    async for event in events:
        match event:
            case Delta():
                answers[event.index].text.append(event.text)
                answers[event.index].tokens += event.tokens
            case Finished():
                answers[event.index].finish_reason = event.finish_reason
            case Done():
                usage = _usage(event)
    choices = [
        Choice(
            index=index,
            message=AssistantMessage(content="".join(answer.text)),
            finish_reason=answer.finish_reason,
            logprobs=_logprobs(answer.tokens) if logprobs else None,
        )
        for index, answer in enumerate(answers)
    ]
    return ChatCompletion(id=head.id, created=head.created, model=head.model, choices=choices, usage=usage)


def opening(head: Head, count: int, with_usage: bool) -> Iterator[str]:
    """The first chunk of each answer: who speaks."""
    for index in range(count):
        yield _chunk(head, index, ChoiceDelta(role="assistant", content=""), with_usage=with_usage)


def piece(event: Event, head: Head, logprobs: bool, with_usage: bool) -> str | None:
    """A chunk for an event; None where it has nothing to tell."""
    match event:
        case Delta():
            found = _logprobs(event.tokens) if logprobs else None
            return _chunk(head, event.index, ChoiceDelta(content=event.text), logprobs=found, with_usage=with_usage)
        case Finished():
            return _chunk(head, event.index, ChoiceDelta(), event.finish_reason, with_usage=with_usage)
        case Done():
            return _dump(head, [], _usage(event), with_usage=True) if with_usage else None


def _chunk(
    head: Head,
    index: int,
    delta: ChoiceDelta,
    finish_reason: FinishReason | None = None,
    logprobs: Logprobs | None = None,
    *,
    with_usage: bool,
) -> str:
    choice = ChunkChoice(index=index, delta=delta, finish_reason=finish_reason, logprobs=logprobs)
    return _dump(head, [choice], None, with_usage=with_usage)


def _dump(head: Head, choices: list[ChunkChoice], usage: Usage | None, *, with_usage: bool) -> str:
    """With `include_usage`, every chunk has the key: null in all but the last."""
    extra = {"usage": usage} if with_usage else {}
    chunk = ChatCompletionChunk(
        id=head.id,
        object="chat.completion.chunk",
        created=head.created,
        model=head.model,
        choices=choices,
        **extra,
    )
    return chunk.model_dump_json(exclude_unset=True)


def _usage(done: Done) -> Usage:
    return Usage(
        prompt_tokens=done.prompt_tokens,
        completion_tokens=done.completion_tokens,
        total_tokens=done.prompt_tokens + done.completion_tokens,
    )


def _logprobs(tokens: list[Token] | tuple[Token, ...]) -> Logprobs:
    return Logprobs(
        content=[
            TokenLogprob(
                token=token.text,
                logprob=token.logprob,
                bytes=list(token.bytes),
                top_logprobs=[_top(alternative) for alternative in token.top],
            )
            for token in tokens
        ]
    )


def _top(alternative: Alternative) -> TopLogprob:
    return TopLogprob(token=alternative.text, logprob=alternative.logprob, bytes=list(alternative.bytes))
