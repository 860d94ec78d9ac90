"""A request for completions inside the model process, and the events that answer it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from strop.types import Json, Message, ToolCall

FinishReason = Literal["stop", "length", "tool_calls"]


@dataclass(frozen=True)
class Conversation:
    """A prompt that the model's chat template renders."""

    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Json], ...] = ()
    """Function schemas, in OpenAI's form."""
    template: Mapping[str, Json] = field(default_factory=dict)
    """Options for the chat template, such as `{"enable_thinking": false}`."""
    add_generation_prompt: bool = True
    """Whether the prompt ends with the opening of the assistant's turn."""


@dataclass(frozen=True)
class GenerateRequest:
    """`n` completions of one prompt."""

    model: str
    """Name that the model was loaded under."""
    prompt: Conversation | str | tuple[int, ...]
    """Conversation, text, or token ids."""
    n: int = 1
    max_tokens: int | None = None
    """Limit on each completion; None leaves it to the model's positions."""
    temperature: float = 1.0
    top_p: float = 1.0
    stop: tuple[str, ...] = ()
    seed: int | None = None
    """The same seed, prompt and weights give the same completions; None draws a fresh one."""
    logprobs: bool = False
    """Whether events carry tokens with their log-probabilities."""
    top_logprobs: int = 0
    """How many of the likeliest tokens come with each token."""
    token_ids: bool = False
    """Whether events carry all sampled ids, those without text included."""


@dataclass(frozen=True)
class Alternative:
    """A token that could have been drawn."""

    text: str
    id: int
    logprob: float
    bytes: tuple[int, ...]


@dataclass(frozen=True)
class Token:
    """A token of a completion."""

    text: str
    """U+FFFD for bytes that are no whole character by themselves: see `bytes`."""
    id: int
    logprob: float
    """At the sampling temperature; at temperature 1 where that is 0."""
    bytes: tuple[int, ...]
    top: tuple[Alternative, ...] = ()
    """The likeliest first."""


@dataclass(frozen=True)
class Started:
    """The first tokens have been drawn; comes before every other event."""

    prompt_ids: tuple[int, ...]


@dataclass(frozen=True)
class Delta:
    """The next piece of one completion: whole characters, never a part of a stop string."""

    index: int
    text: str
    tokens: tuple[Token, ...] = ()
    """With `logprobs`: the tokens whose text comes with this piece; with `token_ids`, of all ids."""
    ids: tuple[int, ...] = ()
    """With `token_ids`: the ids drawn since the last piece."""
    drawn: int = 0
    """Tokens drawn since the last piece."""


@dataclass(frozen=True)
class Finished:
    """One completion has ended."""

    index: int
    finish_reason: FinishReason
    completion_tokens: int
    tool_calls: tuple[ToolCall, ...] = ()
    content: str | None = None
    """With `tool_calls`: the text around them."""


@dataclass(frozen=True)
class Done:
    """All completions of a request have ended."""

    prompt_tokens: int
    completion_tokens: int
    """Of all completions together."""


Event = Started | Delta | Finished | Done
"""What answers a request, in order; `Done` comes last."""
