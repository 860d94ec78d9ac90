"""From a chat request to the ids of its prompt."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence

from transformers import PreTrainedTokenizerBase

from strop.errors import DataError, InvalidRequest
from strop.policy.chat import ChatTemplate
from strop.serve.wire import ChatRequest
from strop.types import Json, Message, ToolCall

# Arguments of the call that renders a template: no options of a template itself.
_RESERVED = frozenset(inspect.signature(PreTrainedTokenizerBase.apply_chat_template).parameters) | {"messages"}
_ROLES: Mapping[str, str] = {
    "developer": "system",
    "system": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}


def prompt_ids(request: ChatRequest, tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    """Ids of the conversation, up to where the answer begins.

    Raises InvalidRequest for messages that cannot be read, and where the model's template
    refuses them or drops a part.
    """
    if not request.messages:
        raise InvalidRequest("messages: none; a conversation needs at least one", param="messages")
    if reserved := sorted(_RESERVED & request.template.keys()):
        raise InvalidRequest(f"template: {reserved[0]} is no option of a chat template", param="template")
    messages = [_message(form, f"messages[{index}]") for index, form in enumerate(request.messages)]
    chat = ChatTemplate(tokenizer, request.model, request.template)
    try:
        return chat.ids_of(messages, request.tools, "messages")
    except DataError as error:
        raise InvalidRequest(error.message, param="messages") from error


def _message(form: Mapping[str, Json], place: str) -> Message:
    given = form.get("role")
    role = _ROLES.get(given) if isinstance(given, str) else None
    if role is None:
        raise InvalidRequest(f"{place}.role: {given!r}; expected one of {', '.join(_ROLES)}", param=place)
    calls = [_call(call, f"{place}.tool_calls[{index}]") for index, call in enumerate(form.get("tool_calls") or ())]
    content = _text(form.get("content"), f"{place}.content")
    return Message(role, content, tuple(calls), form.get("tool_call_id"), form.get("name"))


def _text(content: Json, place: str) -> str:
    """Text, nothing, or the text of several parts."""
    if content is None or isinstance(content, str):
        return content or ""
    parts = content if isinstance(content, Sequence) else [content]
    texts = []
    for index, part in enumerate(parts):
        text = part.get("text") if isinstance(part, Mapping) else None
        if not isinstance(text, str):
            raise InvalidRequest(f"{place}[{index}]: only text is supported", param=place)
        texts.append(text)
    return "".join(texts)


def _call(call: Json, place: str) -> ToolCall:
    try:
        function = call["function"]
        return ToolCall(str(call.get("id", "")), str(function["name"]), str(function["arguments"]))
    except (KeyError, TypeError, AttributeError):
        message = f'{place}: expected {{"id", "type": "function", "function": {{"name", "arguments"}}}}'
        raise InvalidRequest(message, param=place) from None
