"""Conversations to token ids, by the model's own chat template.

Ids are made once, for the prompt. What the model then says stays the ids that it sampled:
text is decoded for people and reward functions, and never encoded again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

from strop.errors import DataError, ModelError
from strop.policy.tool_calls import ToolCallFormat, find_format
from strop.text import cut_at_stop
from strop.types import Json, Message, Row


class ChatTemplate:
    """A tokenizer's chat template: conversations to ids, and ids to messages."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, name: str, options: Mapping[str, Any]) -> None:
        """`options` go to every rendering; ModelError when the model has no chat template."""
        if not tokenizer.chat_template:
            raise ModelError(f"{name} has no chat template; use an instruct or chat model", param="model")
        self._tokenizer = tokenizer
        self._name = name
        self._options = dict(options)

    def prompt_ids(self, row: Row) -> tuple[int, ...]:
        """Ids of the prompt. DataError, naming the line, when the template refuses or drops a part."""
        return self.ids_of(row.messages, row.tools, f"line {row.line}")

    def ids_of(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Json]], where: str) -> tuple[int, ...]:
        """Ids of a conversation up to where the model's answer begins; `where` names it in errors.

        DataError when the template refuses it or drops a part.
        """
        text = self.render(messages, tools, where)
        for part, found in _parts(messages, tools):
            if found not in text and json.dumps(found, ensure_ascii=False)[1:-1] not in text:
                raise DataError(f"{where}: the chat template of {self._name} drops {part} from the prompt")
        return self.encode(text)

    def render(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Json]], where: str) -> str:
        """Text of a conversation up to where the model's answer begins."""
        try:
            text = self._tokenizer.apply_chat_template(
                [self._for_template(message) for message in messages],
                tools=list(tools) or None,
                tokenize=False,
                **{"add_generation_prompt": True, **self._options},
            )
        except (TemplateError, TypeError, ValueError) as error:  # filters raise Python's own errors
            raise DataError(f"{where}: the chat template of {self._name} refuses the messages: {error}") from error
        assert isinstance(text, str)
        return text

    def _for_template(self, message: Message) -> dict[str, Json]:
        """The message with the arguments of its calls as most templates take them, as objects: they
        write JSON themselves, and would quote text twice."""
        form = message.as_dict()
        if not message.tool_calls:
            return form
        if not self.tool_calls.arguments_as_text:
            for call in form["tool_calls"]:
                call["function"]["arguments"] = _arguments(call["function"]["arguments"])
        if self.tool_calls.content_as_null and not message.content:
            form["content"] = None
        return form

    def encode(self, text: str) -> tuple[int, ...]:
        """Ids of rendered text. The template wrote the special tokens: none are added."""
        return tuple(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    @cached_property
    def tool_calls(self) -> ToolCallFormat:
        """How the model writes tool calls, as its template shows."""

        def render(messages: list[dict[str, Any]], tools: list[dict[str, Any]], add_generation_prompt: bool) -> str:
            return str(
                self._tokenizer.apply_chat_template(
                    messages,
                    tools=tools,
                    add_generation_prompt=add_generation_prompt,
                    tokenize=False,
                    **self._options,
                )
            )

        return find_format(render)

    def answer(
        self, token_ids: Sequence[int], tools: Sequence[Mapping[str, Json]], stop: Sequence[str] = ()
    ) -> Message:
        """The assistant message that sampled ids stand for, cut at the first stop string.

        Tool calls are read where tools were offered; one that cannot be read stays in the text.
        """
        text = cut_at_stop(self.text(token_ids), stop)
        if not tools:
            return Message("assistant", text)
        marked = cut_at_stop(self._tokenizer.decode(token_ids, skip_special_tokens=False), stop)
        parsed = self.tool_calls.parse(marked, tools)
        if not parsed.calls:
            return Message("assistant", text)
        content = parsed.content
        for token in self._tokenizer.all_special_tokens:
            content = content.replace(token, "")
        return Message("assistant", content.strip(), parsed.calls)

    def text(self, token_ids: Sequence[int]) -> str:
        """Text of sampled ids, without special tokens."""
        return self._tokenizer.decode(token_ids, skip_special_tokens=True)  # type: ignore[no-any-return]


def _arguments(text: str) -> Json:
    """The arguments of a call as a value; text that is no JSON, as a model may write it, stays text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _parts(messages: Sequence[Message], tools: Sequence[Mapping[str, Json]]) -> list[tuple[str, str]]:
    """What must survive rendering: some templates drop tools and tool messages without a word."""
    parts = [(f"the tool {name!r}", name) for tool in tools if (name := _tool_name(tool))]
    for message in messages:
        for call in message.tool_calls:
            arguments = _arguments(call.arguments)
            names = arguments if isinstance(arguments, Mapping) else ()
            parts.append((f"a call of {call.name!r}", call.name))
            parts += [(f"an argument of {call.name!r}", argument) for argument in names]
        if message.role == "tool":
            parts.append(("a tool result", message.content.strip()))
    return parts


def _tool_name(tool: Mapping[str, Json]) -> str:
    function = tool.get("function", tool)
    return str(function.get("name", "")) if isinstance(function, Mapping) else ""
