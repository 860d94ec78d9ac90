"""Chat completions as servers send them, read into plain values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from strop.types import Json, ToolCall


@dataclass(frozen=True)
class Usage:
    """Tokens that a call used; 0 where a server does not tell."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    """Those of the prompt that its server remembered."""

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.cached_tokens + other.cached_tokens,
        )


@dataclass(frozen=True)
class Choice:
    """One assistant message."""

    text: str
    finish_reason: str
    refusal: str = ""
    """What the model says instead of an answer."""
    tool_calls: tuple[ToolCall, ...] = ()


@dataclass(frozen=True)
class ChatReply:
    """A chat completion with at least one choice."""

    choices: tuple[Choice, ...]
    usage: Usage
    model: str | None
    """As the server calls it; None where it does not say."""


class NoCompletion(Exception):
    """A body that is no chat completion, such as the page of a proxy."""


def read_reply(body: bytes) -> ChatReply:
    """Read the body of an answer. Raises NoCompletion."""
    try:
        completion = json.loads(body)
        choices = tuple(_choice(choice) for choice in completion["choices"])
        if choices:
            model = completion.get("model")
            named = model if isinstance(model, str) and model else None
            return ChatReply(choices, _usage(completion.get("usage")), named)
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        pass
    start = body[:60].decode(errors="replace")
    raise NoCompletion(f"the response is not a chat completion: {start!r}")


def encodable(text: str) -> str:
    """The text with halves of UTF-16 pairs, which JSON escapes can name and files cannot hold, replaced."""
    return text.encode("utf-8", "replace").decode()


def _choice(choice: Mapping[str, Any]) -> Choice:
    message = choice["message"]
    content = message.get("content")
    text = content if isinstance(content, str) else json.dumps(content) if content else ""
    return Choice(
        encodable(text),
        str(choice.get("finish_reason") or "stop"),
        encodable(str(message.get("refusal") or "")),
        tuple(_tool_call(call) for call in message.get("tool_calls") or () if call.get("function")),
    )


def _tool_call(call: Mapping[str, Any]) -> ToolCall:
    function = call["function"]
    arguments = function.get("arguments") or ""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return ToolCall(*(encodable(str(part or "")) for part in (call.get("id"), function.get("name"), text)))


def _usage(given: Json) -> Usage:
    usage = given if isinstance(given, dict) else {}
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else 0
    counts = (usage.get("prompt_tokens"), usage.get("completion_tokens"), cached)
    return Usage(*(count if type(count) is int and count > 0 else 0 for count in counts))
