"""What `sample` and `item` hold."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from strop.rewards.grade_arguments import SAMPLE_NAMES, item_payload, sample_payload
from strop.types import Message, Rollout, Row, StopReason, ToolCall, Turn

TOOL_CALL = ToolCall("c1", "search", '{"q": "x"}')
CALL = {"id": "c1", "type": "function", "function": {"name": "search", "arguments": '{"q": "x"}'}}


def row(fields: dict[str, Any], reference: Any = None, *messages: Message) -> Row:
    return Row("r1", 1, messages, (), reference, fields)


def turn(text: str, calls: tuple[ToolCall, ...] = (), *observations: Message) -> Turn:
    return Turn(Message("assistant", text, calls), StopReason.STOP, 1, observations=observations)


def rollout(*turns: Turn) -> Rollout:
    return Rollout(0, turns, StopReason.STOP)


def test_a_sample_offers_steps_messages_and_the_last_text() -> None:
    played = rollout(
        turn("let me look", (TOOL_CALL,), Message("tool", "found", tool_call_id="c1", name="search")),
        turn("done"),
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
        "output_json": None,
        "output_tools": [],
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "done"}, "finish_reason": "stop"}],
        "stop_reason": "stop",
    }


def test_the_names_of_a_sample_are_listed() -> None:
    assert set(sample_payload(rollout())) == set(SAMPLE_NAMES)


@pytest.mark.parametrize("text", ['{"a": [1, 2.5, null]}', " 7 ", '"x"', "true", "[" * 64 + "]" * 64])
def test_output_json_is_the_answer_where_all_of_it_is_json(text: str) -> None:
    assert sample_payload(rollout(turn(text)))["output_json"] == json.loads(text)


@pytest.mark.parametrize(
    "text",
    ["", "It is {}", "{}{}", "NaN", '{"a": -Infinity}', "1e999", "9" * 5000, "[" * 65 + "]" * 65, "[" * 200_000],
    ids=["empty", "text", "two", "nan", "infinity", "overflow", "digits", "deep", "very deep"],
)
def test_output_json_is_none_for_any_other_answer(text: str) -> None:
    assert sample_payload(rollout(turn(text)))["output_json"] is None


def test_choices_have_the_form_of_a_chat_completion() -> None:
    played = rollout(turn("", (TOOL_CALL,)))
    message = {"role": "assistant", "content": "", "tool_calls": [CALL]}
    assert sample_payload(played)["choices"] == [{"index": 0, "message": message, "finish_reason": "tool_calls"}]
    cut_off = dataclasses.replace(played, stop_reason=StopReason.LENGTH)
    assert sample_payload(cut_off)["choices"][0]["finish_reason"] == "length"


def test_output_tools_are_the_calls_of_the_last_step() -> None:
    assert sample_payload(rollout(turn("", (TOOL_CALL,))))["output_tools"] == [CALL]


def test_a_rollout_without_steps_has_an_empty_text() -> None:
    assert sample_payload(rollout())["output_text"] == ""


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
