"""Collecting what a chat request is answered with."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from strop.serve.answers import Answer
from strop.serve.generate import Conversation, Delta, Done, Event, Finished, GenerateRequest, Started, Token
from strop.types import Message


@dataclass
class Answers:
    """Everything that came for one request."""

    texts: dict[int, str] = field(default_factory=dict)
    prompt_ids: tuple[int, ...] = ()
    ids: dict[int, list[int]] = field(default_factory=dict)
    tokens: dict[int, list[Token]] = field(default_factory=dict)
    finished: dict[int, Finished] = field(default_factory=dict)
    done: Done | None = None


def ask(model: str, text: str = "the sea", **settings: Any) -> GenerateRequest:
    """A request of one user turn."""
    defaults = {"max_tokens": 16, "seed": 7}
    return GenerateRequest(model, Conversation((Message("user", text),)), **{**defaults, **settings})


def chat_body(model: str, text: str = "the sea", **fields: Any) -> dict[str, Any]:
    """The same as the body of an HTTP request."""
    message = {"role": "user", "content": text}
    return {"model": model, "messages": [message], "max_tokens": 16, "seed": 7, **fields}


def texts_of(answer: dict[str, Any]) -> list[str]:
    """What a chat completion says."""
    return [choice["message"]["content"] for choice in answer["choices"]]


async def collect(events: AsyncGenerator[Event]) -> Answers:
    """Read to the end, and see that everything comes in its order."""
    answers = Answers()
    async with aclosing(events):
        async for event in events:
            assert answers.done is None, "something came after the end"
            if isinstance(event, Done):
                answers.done = event
                continue
            if isinstance(event, Started):
                assert not answers.texts and not answers.finished, "it begins in the middle"
                answers.prompt_ids = event.prompt_ids
                continue
            assert event.index not in answers.finished, "something came after a completion's end"
            if isinstance(event, Delta):
                assert event.text or event.tokens or event.ids
                answers.texts[event.index] = answers.texts.get(event.index, "") + event.text
                answers.tokens.setdefault(event.index, []).extend(event.tokens)
                answers.ids.setdefault(event.index, []).extend(event.ids)
            else:
                answers.finished[event.index] = event
    assert answers.done is not None
    assert answers.done.completion_tokens == sum(end.completion_tokens for end in answers.finished.values())
    return answers


def chunks_of(request: GenerateRequest, events: Iterable[Event]) -> Iterator[dict[str, Any]]:
    """The chunks that a model process streams, with the usage so far in each."""
    answer = Answer(request, usage=True, continuous=True)
    for event in events:
        yield from answer.chunks(event)


async def joined(chunks: AsyncGenerator[dict[str, Any]]) -> dict[int, str]:
    """The texts of a streamed chat completion."""
    texts: dict[int, str] = {}
    async with aclosing(chunks):
        async for chunk in chunks:
            for choice in chunk["choices"]:
                texts[choice["index"]] = texts.get(choice["index"], "") + choice["delta"].get("content", "")
    return texts
