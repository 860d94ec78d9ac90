"""Collecting what a chat request is answered with."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from strop.serve.wire import ChatRequest, Delta, Done, Event, Finished, Token


@dataclass
class Answers:
    """Everything that came for one request."""

    texts: dict[int, str] = field(default_factory=dict)
    tokens: dict[int, list[Token]] = field(default_factory=dict)
    finished: dict[int, Finished] = field(default_factory=dict)
    done: Done | None = None


def ask(model: str, text: str = "the sea", **settings: Any) -> ChatRequest:
    """A request of one user turn."""
    defaults = {"max_tokens": 16, "seed": 7}
    return ChatRequest("1", model, ({"role": "user", "content": text},), **{**defaults, **settings})


async def collect(events: AsyncGenerator[Event]) -> Answers:
    """Read to the end, and see that everything comes in its order."""
    answers = Answers()
    async with aclosing(events):
        async for event in events:
            assert answers.done is None, "something came after the end"
            if isinstance(event, Done):
                answers.done = event
                continue
            assert event.index not in answers.finished, "something came after a completion's end"
            if isinstance(event, Delta):
                assert event.text or event.tokens
                answers.texts[event.index] = answers.texts.get(event.index, "") + event.text
                answers.tokens.setdefault(event.index, []).extend(event.tokens)
            else:
                answers.finished[event.index] = event
    assert answers.done is not None
    assert answers.done.completion_tokens == sum(end.completion_tokens for end in answers.finished.values())
    return answers
