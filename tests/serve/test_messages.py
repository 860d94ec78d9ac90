"""Messages and tools of chat requests: brought into one form, or refused with their place."""

from __future__ import annotations

from typing import Any

import pytest

from strop.errors import InvalidRequest
from strop.serve.messages import check_tools, read_messages
from strop.types import Message, ToolCall

CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}}


def test_messages_are_brought_into_one_form() -> None:
    found = read_messages(
        [
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "1 "}, {"type": "text", "text": "+ 1"}]},
            {"role": "assistant", "content": None, "tool_calls": [CALL], "refusal": None, "annotations": []},
            {"role": "tool", "tool_call_id": "c1", "content": "2", "name": "add"},
        ]
    )
    assert found == (
        Message("system", "Be brief."),
        Message("user", "1 + 1"),
        Message("assistant", "", (ToolCall("c1", "add", "{}"),)),
        Message("tool", "2", (), "c1", "add"),
    )


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"role": "robot", "content": "x"}, "role"),
        ({"content": "x"}, "role"),
        ({"role": ["user"], "content": "x"}, "role"),
        ({"role": "user", "content": [{"type": "image_url", "image_url": {}}]}, "content[0]"),
        ({"role": "user", "content": [{"type": "text"}]}, "content[0].text"),
        ({"role": "user", "content": 7}, "content"),
        ({"role": "user", "content": "\ud800"}, "content"),
        ({"role": "user", "content": "x", "audio": {"id": "a"}}, "audio"),
        ({"role": "user", "content": "x", "tool_calls": [CALL]}, "tool_calls"),
        ({"role": "assistant", "tool_calls": {"a": 1}}, "tool_calls"),
        ({"role": "assistant", "tool_calls": [{"id": "1"}]}, "tool_calls[0]"),
        ({"role": "assistant", "tool_calls": ["x"]}, "tool_calls[0]"),
        ({"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]}, "tool_calls[0].function.arguments"),
        ({"role": "tool", "content": "x", "tool_call_id": 7}, "tool_call_id"),
    ],
)
def test_messages_that_cannot_be_read_are_refused_with_their_place(message: Any, param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read_messages([{"role": "user", "content": "x"}, message])
    assert caught.value.param == f"messages[1].{param}"
    assert "messages[1]" in caught.value.message


@pytest.mark.parametrize(
    "tool", [{}, {"type": "custom", "custom": {"name": "a"}}, {"type": "function", "function": {}}]
)
def test_tools_that_are_no_functions_are_refused(tool: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_tools([{"type": "function", "function": {"name": "a"}}, tool])
    assert caught.value.param == "tools[1]"
