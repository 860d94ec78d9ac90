"""What `sample` and `item` hold."""

from __future__ import annotations

from typing import Any

import pytest

from strop.rewards.payload import item_payload, sample_payload
from strop.types import Message, Rollout, Row, Step, StopReason, ToolCall

CALL = {"id": "c1", "type": "function", "function": {"name": "search", "arguments": '{"q": "x"}'}}


def row(fields: dict[str, Any], reference: Any = None, *messages: Message) -> Row:
    return Row("r1", 1, messages, (), reference, fields)


def rollout(messages: tuple[Message, ...], steps: tuple[Step, ...]) -> Rollout:
    return Rollout(0, messages, steps, (), (), (), 0.0, StopReason.STOP)


def test_a_sample_offers_steps_messages_and_the_last_text() -> None:
    played = rollout(
        (
            Message("assistant", "let me look", (ToolCall("c1", "search", '{"q": "x"}'),)),
            Message("tool", "found", tool_call_id="c1", name="search"),
            Message("assistant", "done"),
        ),
        (Step("let me look", (CALL,), ("found",)), Step("done")),
    )
    assert sample_payload(played) == {
        "trajectories": [
            {"response": "let me look", "tool_calls": [CALL], "tool_results": ["found"]},
            {"response": "done", "tool_calls": [], "tool_results": []},
        ],
        "messages": [
            {"role": "assistant", "content": "let me look", "tool_calls": [CALL]},
            {"role": "tool", "content": "found", "tool_call_id": "c1", "name": "search"},
            {"role": "assistant", "content": "done"},
        ],
        "output_text": "done",
        "output_tools": [],
        "stop_reason": "stop",
    }


def test_output_tools_are_the_calls_of_the_last_step() -> None:
    assert sample_payload(rollout((), (Step("", (CALL,)),)))["output_tools"] == [CALL]


def test_a_rollout_without_steps_has_an_empty_text() -> None:
    assert sample_payload(rollout((), ()))["output_text"] == ""


def test_an_item_has_every_key_of_the_row_and_three_more() -> None:
    messages = (Message("system", "be short"), Message("user", "first"), Message("user", "last"))
    fields = {"messages": [], "level": 3, "metadata": {"answer": "4"}}
    assert item_payload(row(fields, "4", *messages)) == fields | {"prompt": "last", "reference": "4"}


@pytest.mark.parametrize("fields", [{}, {"metadata": None}])
def test_metadata_is_always_there(fields: dict[str, Any]) -> None:
    assert item_payload(row(fields))["metadata"] == {}


def test_keys_of_the_row_win() -> None:
    fields: dict[str, Any] = {"prompt": "theirs", "reference": None, "metadata": {}}
    assert item_payload(row(fields, "ours", Message("user", "asked"))) == fields
