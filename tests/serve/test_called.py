"""Tool calls in a growing answer: what is sent while it grows, and what its end brings."""

from __future__ import annotations

import json
from typing import Any

import pytest

from strop.policy.tool_calls import DEFAULT_FORMAT
from strop.serve.called import CallText

TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
CALL = '<tool_call>\n{"name": "look", "arguments": {"at": "sea"}}\n</tool_call>'


def grown(text: str, size: int) -> tuple[list[str], str, str, list[tuple[str, Any]]]:
    """What was sent piece by piece, the rest, the content and the calls, with pieces of a size."""
    growing = CallText(DEFAULT_FORMAT, [TOOL], ["<|im_end|>", "<|pad|>"])
    sent = [growing.add(text[start : start + size]) for start in range(0, len(text), size)]
    rest, content, calls = growing.end()
    return sent, rest, content, [(call.name, json.loads(call.arguments)) for call in calls]


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_text_before_a_call_is_sent_and_the_call_is_not(size: int) -> None:
    sent, rest, content, calls = grown(f"I look. {CALL}<|im_end|>", size)
    assert "".join(sent) == "I look. "
    assert (rest, content, calls) == ("", "I look.", [("look", {"at": "sea"})])


@pytest.mark.parametrize("size", [1, 4])
def test_several_calls_come_in_their_order_and_text_behind_them_at_the_end(size: int) -> None:
    other = CALL.replace("sea", "sky")
    sent, rest, content, calls = grown(f"So: {CALL}{other} done<|im_end|>", size)
    assert "".join(sent) == "So: "
    assert ("".join(sent) + rest).split() == content.split() == ["So:", "done"]
    assert [arguments for _, arguments in calls] == [{"at": "sea"}, {"at": "sky"}]


@pytest.mark.parametrize("text", ["a < b and <tool", "plain", "<tool_call>\nno JSON at all\n</tool_call> so", ""])
@pytest.mark.parametrize("size", [1, 7])
def test_an_answer_without_a_call_is_sent_whole_without_special_tokens(text: str, size: int) -> None:
    sent, rest, content, calls = grown(f"{text}<|im_end|>", size)
    assert ("".join(sent) + rest, content, calls) == (text, text, [])
