"""Conversations to token ids, by the model's own chat template.

Ids are made once, for the prompt. What the model then says stays the ids that it sampled:
text is decoded for people and reward functions, and never encoded again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

from strop.errors import DataError, ModelError
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
                [_for_template(message) for message in messages],
                tools=list(tools) or None,
                add_generation_prompt=True,
                tokenize=False,
                **self._options,
            )
        except (TemplateError, TypeError, ValueError) as error:  # filters raise Python's own errors
            raise DataError(f"{where}: the chat template of {self._name} refuses the messages: {error}") from error
        assert isinstance(text, str)
        return text

    def encode(self, text: str) -> tuple[int, ...]:
        """Ids of rendered text. The template wrote the special tokens: none are added."""
        return tuple(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def answer(self, text: str, tools: Sequence[Mapping[str, Json]]) -> Message:
        """The assistant message that a sampled text stands for."""
        return Message("assistant", text)

    def text(self, token_ids: Sequence[int]) -> str:
        """Text of sampled ids, without special tokens."""
        return self._tokenizer.decode(token_ids, skip_special_tokens=True)  # type: ignore[no-any-return]


def _for_template(message: Message) -> dict[str, Json]:
    """The message with the arguments of its calls as objects, not as JSON text: templates write
    JSON themselves, and would quote it twice."""
    form = message.as_dict()
    for call in form.get("tool_calls", ()):
        with suppress(ValueError):  # a model's own call may be malformed
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    return form


def _parts(messages: Sequence[Message], tools: Sequence[Mapping[str, Json]]) -> list[tuple[str, str]]:
    """What must survive rendering: some templates drop tools and tool messages without a word."""
    parts = [(f"the tool {name!r}", name) for tool in tools if (name := _tool_name(tool))]
    for message in messages:
        for call in _for_template(message).get("tool_calls", ()):
            name, arguments = call["function"]["name"], call["function"]["arguments"]
            names = arguments if isinstance(arguments, Mapping) else ()
            parts += [(f"a call of {name!r}", name), *((f"an argument of {name!r}", argument) for argument in names)]
        if message.role == "tool":
            parts.append(("a tool result", message.content.strip()))
    return parts


def _tool_name(tool: Mapping[str, Json]) -> str:
    function = tool.get("function", tool)
    return str(function.get("name", "")) if isinstance(function, Mapping) else ""
