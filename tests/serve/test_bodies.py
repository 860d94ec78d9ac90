"""Bodies of requests: what they ask the model for."""

from __future__ import annotations

from typing import Any

import pytest

from strop.errors import InvalidRequest
from strop.serve.bodies import ChatBody, CompletionBody
from strop.serve.generate import Conversation, GenerateRequest
from strop.types import Message

TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}


def chat(**fields: Any) -> GenerateRequest:
    return ChatBody.model_validate(
        {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}], **fields}
    ).request()


def conversation(**fields: Any) -> Conversation:
    prompt = chat(**fields).prompt
    assert isinstance(prompt, Conversation)
    return prompt


def test_every_option_is_read() -> None:
    asked = chat(
        n=3, seed=11, temperature=0.5, top_p=0.9, stop=["a", "b"], max_completion_tokens=9, logprobs=True,
        top_logprobs=2, tools=[TOOL], return_token_ids=True, chat_template_kwargs={"enable_thinking": False},
        add_generation_prompt=False,
    )  # fmt: skip
    prompt = Conversation((Message("user", "Hi"),), (TOOL,), {"enable_thinking": False}, False)
    assert asked == GenerateRequest("tiny", prompt, 3, 9, 0.5, 0.9, ("a", "b"), 11, True, 2, True)


def test_what_is_not_said_has_openais_defaults() -> None:
    asked = chat(stop=None, seed=None, max_tokens=4, tool_choice="none", tools=[TOOL], response_format={"type": "text"})
    assert asked == GenerateRequest("tiny", Conversation((Message("user", "Hi"),)), max_tokens=4)
    text = CompletionBody.model_validate({"model": "tiny", "prompt": "x"}).request()
    assert text == GenerateRequest("tiny", "x", max_tokens=16)


@pytest.mark.parametrize(("logprobs", "expected"), [(None, (False, 0)), (0, (True, 0)), (3, (True, 3))])
def test_text_completions_take_a_number_of_logprobs(logprobs: int | None, expected: tuple[bool, int]) -> None:
    asked = CompletionBody.model_validate({"model": "tiny", "prompt": [1, 2], "logprobs": logprobs}).request()
    assert (asked.logprobs, asked.top_logprobs) == expected
    assert asked.prompt == (1, 2)


@pytest.mark.parametrize(
    ("effort", "thinks"), [("none", False), ("minimal", False), ("low", False), ("medium", True), ("xhigh", True)]
)
def test_reasoning_effort_becomes_options_of_the_template(effort: str, thinks: bool) -> None:
    assert conversation(reasoning_effort=effort).template == {"reasoning_effort": effort, "enable_thinking": thinks}


@pytest.mark.parametrize("field", ["echo", "suffix", "best_of", "logit_bias", "presence_penalty"])
def test_what_a_text_completion_cannot_do_is_refused_by_name(field: str) -> None:
    value = {"echo": True, "suffix": "x", "best_of": 2, "logit_bias": {"1": 2}, "presence_penalty": 1}[field]
    with pytest.raises(InvalidRequest) as caught:
        CompletionBody.model_validate({"model": "tiny", "prompt": "x", field: value}).request()
    assert caught.value.param == field
