"""What the user's `grade(sample, item)` gets to see, as plain JSON values."""

from __future__ import annotations

from strop.types import Json, Message, Rollout, Row, Step


def sample_payload(rollout: Rollout) -> dict[str, Json]:
    """The first argument of `grade`: what the model did.

    It has the names of agent trajectories and those of OpenAI's Python graders, so that
    functions written for either work.
    """
    last = rollout.steps[-1] if rollout.steps else Step("")
    return {
        "trajectories": [_step(step) for step in rollout.steps],
        "messages": [_message(message) for message in rollout.messages],
        "output_text": last.response,
        "output_tools": [dict(call) for call in last.tool_calls],
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


def _step(step: Step) -> dict[str, Json]:
    return {
        "response": step.response,
        "tool_calls": [dict(call) for call in step.tool_calls],
        "tool_results": list(step.tool_results),
    }


def _message(message: Message) -> dict[str, Json]:
    """A message in the shape of OpenAI's chat completions; keys without a value are left out."""
    data: dict[str, Json] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        data["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        data["tool_call_id"] = message.tool_call_id
    if message.name is not None:
        data["name"] = message.name
    return data
