"""What a chat completion looks like, for the description of the API."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel


class TopLogprob(BaseModel):
    """A token that could have been drawn."""

    token: str
    logprob: float
    bytes: list[int] | None


class TokenLogprob(TopLogprob):
    """A token of an answer."""

    top_logprobs: list[TopLogprob]


class Logprobs(BaseModel):
    """Log-probabilities of a chat answer or a chunk of one."""

    content: list[TokenLogprob] | None
    refusal: None = None


class Usage(BaseModel):
    """Tokens that a request took."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class CalledFunction(BaseModel):
    """The function of a tool call."""

    name: str
    arguments: str


class MessageToolCall(BaseModel):
    """A tool call of an answer."""

    id: str
    type: Literal["function"] = "function"
    function: CalledFunction


class AssistantMessage(BaseModel):
    """An answer."""

    role: Literal["assistant"] = "assistant"
    content: str | None
    refusal: None = None
    tool_calls: list[MessageToolCall] | None = None


class Choice(BaseModel):
    """One of `n` chat answers."""

    index: int
    message: AssistantMessage
    finish_reason: Literal["stop", "length", "tool_calls"]
    logprobs: Logprobs | None = None
    token_ids: list[int] | None = None


class ChatCompletion(BaseModel):
    """Whole answers to a chat request."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[Choice]
    usage: Usage
    prompt_token_ids: list[int] | None = None
