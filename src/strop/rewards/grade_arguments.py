"""What the user's `grade(sample, item)` gets to see, as plain JSON values."""

from __future__ import annotations

import json
import math
from typing import NoReturn

from strop.types import Json, Message, Rollout, Row, StopReason, Turn

SAMPLE_NAMES = (
    "output_text",
    "output_json",
    "output_tools",
    "choices",
    "trajectories",
    "messages",
    "stop_reason",
)
"""What a sample has, each always there."""
MAX_JSON_DEPTH = 64
"""Deeper nesting is no answer that anybody wants, and could not be handed on."""


def sample_payload(rollout: Rollout) -> dict[str, Json]:
    """The first argument of `grade`: what the model did.

    It has the names of agent trajectories and those of OpenAI's Python graders, so that
    functions written for either work.
    """
    last = rollout.turns[-1].message if rollout.turns else Message("assistant", "")
    return {
        "trajectories": [_trajectory_step(turn) for turn in rollout.turns],
        "messages": [message.as_dict() for message in rollout.messages],
        "output_text": last.content,
        "output_json": _parsed(last.content),
        "output_tools": [call.as_dict() for call in last.tool_calls],
        "choices": [_choice(last, rollout.stop_reason)],
        "stop_reason": rollout.stop_reason.value,
    }


def item_payload(row: Row) -> dict[str, Json]:
    """The second argument of `grade`: the row, with `prompt`, `metadata` and `reference` always there.

    A key of the row itself wins over what strop would put there.
    """
    item = dict(row.fields)
    questions = [message.content for message in row.messages if message.role == "user"]
    item.setdefault("prompt", questions[-1] if questions else "")
    item.setdefault("reference", row.reference)
    if item.get("metadata") is None:
        item["metadata"] = {}
    return item


def _parsed(text: str) -> Json:
    """The JSON value that a whole text is, or None."""
    try:
        value = json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError):
        return None
    return value if _is_flat(value, MAX_JSON_DEPTH) else None


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse(text)


def _is_flat(value: Json, depth: int) -> bool:
    if not isinstance(value, dict | list):
        return True
    inner = value.values() if isinstance(value, dict) else value
    return depth > 0 and all(_is_flat(part, depth - 1) for part in inner)


def _choice(last: Message, reason: StopReason) -> dict[str, Json]:
    """The last turn in the shape of a chat completion's choice."""
    message: dict[str, Json] = {"role": "assistant", "content": last.content}
    if last.tool_calls:
        message["tool_calls"] = [call.as_dict() for call in last.tool_calls]
    if reason is StopReason.LENGTH:
        return {"index": 0, "message": message, "finish_reason": "length"}
    return {"index": 0, "message": message, "finish_reason": "tool_calls" if last.tool_calls else "stop"}


def _trajectory_step(turn: Turn) -> dict[str, Json]:
    results = [message.content for message in turn.observations if message.role == "tool"]
    return {
        "response": turn.message.content,
        "tool_calls": [call.as_dict() for call in turn.message.tool_calls],
        "tool_results": results,
    }
