"""Validation of a row's conversation: each turn, and their sequence."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from strop.data.faults import Refused, clip, describe
from strop.data.strict_json import parse_object
from strop.types import Json, Message, ToolCall

# `developer` is OpenAI's newer name of the system role.
_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool"}
_ROLE_HINTS = {"human": "user", "gpt": "assistant", "model": "assistant", "bot": "assistant", "function": "tool"}


def raw_turns(fields: Mapping[str, Json]) -> list[Json]:
    """The list of turns, not yet validated."""
    messages, prompt = fields.get("messages"), fields.get("prompt")
    if messages is None and isinstance(prompt, str):
        return [{"role": "user", "content": prompt}]
    if messages is None:
        keys = clip(", ".join(fields), 100)
        also = f" and prompt is {describe(prompt)}" if prompt is not None else ""
        problem = f"no messages{also}, only the keys {keys}" if keys else "no messages: the object is empty"
        raise Refused("messages", problem, "give messages as a list, or prompt as text")
    if not isinstance(messages, list) or not messages:
        found = "an empty list" if messages == [] else describe(messages)
        raise Refused("messages", f"messages is {found}", 'write a list like [{"role": "user", "content": …}]')
    return messages


def parse_turn(index: int, raw: Json) -> Message:
    """Validate one turn."""
    where = f"messages[{index}]"
    if not isinstance(raw, dict):
        raise Refused("messages", f"{where} is {describe(raw)}", 'write {"role": …, "content": …}')
    role = _role(raw.get("role"), where)
    calls = _tool_calls(raw.get("tool_calls"), role, where)
    content = _content(raw.get("content"), bool(calls), where)
    if not content.strip() and not calls and role != "tool":
        raise Refused("empty message", f"{where} ({role}) is empty", "give it text, or remove it")
    for key in ("tool_call_id", "name"):
        if not isinstance(raw.get(key), str | None):
            raise Refused("messages", f"{where}.{key} is {describe(raw[key])}", "make it a string")
    return Message(role, content, calls, raw.get("tool_call_id"), raw.get("name"))


def _role(role: Json, where: str) -> str:
    if isinstance(role, str) and role in _ROLES:
        return _ROLES[role]
    hint = _ROLE_HINTS.get(role) if isinstance(role, str) else None
    remedy = f"write {hint!r}" if hint else "use system, user, assistant or tool"
    raise Refused("role", f"{where}.role is {'missing' if role is None else describe(role)}", remedy)


def _content(content: Json, has_calls: bool, where: str) -> str:
    """The text of a turn; text parts are concatenated."""
    if isinstance(content, str):
        return content
    if content is None and has_calls:
        return ""
    if not isinstance(content, list):
        found = "missing" if content is None else describe(content)
        raise Refused("content", f"{where}.content is {found}", "make it a string, or a list of text parts")
    return "".join(_part_text(part, f"{where}.content[{index}]") for index, part in enumerate(content))


def _part_text(part: Json, where: str) -> str:
    remedy = 'strop trains text models: keep only parts like {"type": "text", "text": …}'
    if not isinstance(part, dict):
        raise Refused("content", f"{where} is {describe(part)}", remedy)
    if part.get("type") != "text":
        raise Refused("content", f"{where}.type is {describe(part.get('type'))}", remedy)
    if not isinstance(part.get("text"), str):
        raise Refused("content", f"{where}.text is {describe(part.get('text'))}", remedy)
    return str(part["text"])


def _tool_calls(calls: Json, role: str, where: str) -> tuple[ToolCall, ...]:
    if calls is None:
        return ()
    if role != "assistant":
        raise Refused("tool calls", f"{where} ({role}) has tool_calls", "only assistant turns may call tools")
    if not isinstance(calls, list):
        raise Refused("tool calls", f"{where}.tool_calls is {describe(calls)}", "make it a list of calls")
    return tuple(_tool_call(call, f"{where}.tool_calls[{index}]") for index, call in enumerate(calls))


def _tool_call(call: Json, where: str) -> ToolCall:
    function = call.get("function") if isinstance(call, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(function, dict) or not isinstance(name, str) or not name:
        raise Refused("tool calls", f"{where} has no function.name", 'write {"id": …, "function": {"name": …, …}}')
    identity = call.get("id")
    if not isinstance(identity, str | None):
        raise Refused("tool calls", f"{where}.id is {describe(identity)}", "make it a string")
    arguments = function.get("arguments")
    if isinstance(arguments, dict):
        arguments = json.dumps(arguments, ensure_ascii=False)
    if not isinstance(arguments, str):
        problem = f"{where}.function.arguments is {describe(arguments)}"
        raise Refused("tool calls", problem, "give an object or its JSON")
    try:
        parse_object(arguments)
    except Refused as refused:
        problem = f"{where}.function.arguments is not a JSON object: {refused.problem}"
        raise Refused("tool calls", problem, "write the JSON of an object") from None
    # Many public data sets leave ids out; the place in the row is a stable one.
    return ToolCall(identity or where, name, arguments)


def check_turns(turns: Sequence[Message]) -> None:
    """Raise Refused if the turns are not a valid sequence or leave no prompt before the reference answer."""
    calls: set[str] = set()
    for index, turn in enumerate(turns):
        calls.update(call.id for call in turn.tool_calls)
        if turn.role != "tool":
            continue
        where = f"messages[{index}]"
        if not calls:
            raise Refused(
                "tool turns", f"{where} is a tool turn without a preceding tool call", "put the call before it"
            )
        if turn.tool_call_id is not None and turn.tool_call_id not in calls:
            problem = f"{where}.tool_call_id {clip(turn.tool_call_id)!r} does not match any earlier tool call"
            raise Refused("tool turns", problem, "use the id of the call that it answers")
    if turns[-1].role != "assistant":
        return
    if len(turns) == 1:
        raise Refused("prompt", "the only message is an assistant turn, so no prompt is left", "put the question first")
    if turns[-2].role == "assistant":
        problem = "two assistant turns at the end: the prompt would end with the model's own turn"
        raise Refused("prompt", problem, "let a user or tool turn come before the reference answer")
