"""Messages and tools of a chat request in OpenAI's form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from strop.errors import InvalidRequest
from strop.types import Json, Message, ToolCall

_ROLES = {"developer": "system", "system": "system", "user": "user", "assistant": "assistant", "tool": "tool"}
_KEYS = ("role", "content", "name", "tool_calls", "tool_call_id")


def read_messages(messages: Sequence[Mapping[str, Json]]) -> tuple[Message, ...]:
    """Messages with their content as one text each.

    Raises InvalidRequest, with the place as `param`, for what is malformed or not supported.
    """
    return tuple(_message(message, f"messages[{index}]") for index, message in enumerate(messages))


def check_tools(tools: Sequence[Mapping[str, Json]]) -> None:
    """Refuse tools that are no functions. Raises InvalidRequest with the place as `param`."""
    for index, tool in enumerate(tools):
        function = tool.get("function")
        if tool.get("type") != "function" or not isinstance(function, dict) or not _is_text(function.get("name")):
            raise InvalidRequest(
                f'tools[{index}]: write {{"type": "function", "function": {{"name": …, "parameters": …}}}}',
                param=f"tools[{index}]",
            )


def _message(message: Mapping[str, Json], where: str) -> Message:
    role = message.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        raise InvalidRequest(f"{where}.role is {role!r}; expected one of {', '.join(_ROLES)}", param=f"{where}.role")
    for key, value in message.items():
        if key not in _KEYS and value not in (None, [], {}):  # answers are sent back with all their nulls
            raise InvalidRequest(f"{where}.{key}: not supported; remove it", param=f"{where}.{key}")
    calls = message.get("tool_calls") or []
    if not isinstance(calls, list):
        raise InvalidRequest(f"{where}.tool_calls is not a list", param=f"{where}.tool_calls")
    if calls and role != "assistant":
        raise InvalidRequest(f"{where}: only assistant messages have tool_calls", param=f"{where}.tool_calls")
    return Message(
        role=_ROLES[role],
        content=_content(message.get("content"), f"{where}.content"),
        tool_calls=tuple(_call(call, f"{where}.tool_calls[{index}]") for index, call in enumerate(calls)),
        tool_call_id=_optional(message, "tool_call_id", where),
        name=_optional(message, "name", where),
    )


def _content(content: Json, where: str) -> str:
    if content is None:
        return ""
    if not isinstance(content, list):
        return _text(content, where)
    return "".join(_part(part, f"{where}[{index}]") for index, part in enumerate(content))


def _part(part: Json, where: str) -> str:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind != "text":
        raise InvalidRequest(f"{where}: parts of type {kind!r} are not supported; send text", param=where)
    return _text(part.get("text"), f"{where}.text")


def _call(call: Json, where: str) -> ToolCall:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        raise InvalidRequest(f'{where}: write {{"id": …, "type": "function", "function": {{…}}}}', param=where)
    name, arguments = (_text(function.get(key), f"{where}.function.{key}") for key in ("name", "arguments"))
    return ToolCall(_text(call.get("id") or where, f"{where}.id"), name, arguments)


def _optional(message: Mapping[str, Json], key: str, where: str) -> str | None:
    value = message.get(key)
    return None if value is None else _text(value, f"{where}.{key}")


def _text(value: Json, where: str) -> str:
    if not isinstance(value, str):
        raise InvalidRequest(f"{where} is not a string", param=where)
    if not _is_text(value):
        raise InvalidRequest(f"{where} contains a lone surrogate; send valid Unicode", param=where)
    return value


def _is_text(value: Json) -> bool:
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:
        return False
