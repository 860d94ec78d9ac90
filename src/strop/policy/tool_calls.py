"""Tool calls in what a model says: found from its chat template, read back as calls.

How a model writes calls is seen, not looked up by its name: an assistant message with known
calls goes through the model's own template, and the family is the one whose reader gives
back exactly these calls. This module knows no torch and no tokenizer.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from strop.policy.tool_families import FAMILIES, Family
from strop.policy.tool_readers import ReadCall, Schemas
from strop.types import Json, ToolCall

Render = Callable[[list[dict[str, Any]], list[dict[str, Any]], bool], str]
"""Text of messages and tools, with the beginning of an answer behind it or without. Raises
anything where the template refuses them."""


@dataclass(frozen=True)
class ParsedAnswer:
    """What a model said, calls apart."""

    content: str
    """The text around the calls; all of it where there is none."""
    calls: tuple[ToolCall, ...] = ()
    malformed: tuple[str, ...] = ()
    """For each call that could not be read what is wrong with it. Its text stays in the content."""


@dataclass(frozen=True)
class ToolCallFormat:
    """The tool-call format of a model."""

    name: str
    """Name of the family."""
    family: Family
    proved: bool = False
    """Whether the model's template was seen to write calls like this; otherwise it is a default."""
    arguments_as_text: bool = False
    """Whether the template takes the arguments of earlier calls as JSON text and not as an object."""
    content_as_null: bool = False
    """Whether the template writes calls only beside a content of null."""

    @property
    def openings(self) -> tuple[str, ...]:
        """Texts that can begin a call."""
        return self.family.openings

    def parse(self, text: str, tools: Sequence[Mapping[str, Json]] = ()) -> ParsedAnswer:
        """Read the calls of an answer to a prompt that offered `tools`. Never raises.

        `text` has its special tokens: many families mark calls with them. The schemas of the tools
        tell text from numbers where the family writes both alike.
        """
        schemas = _schemas(tools)
        calls: list[ToolCall] = []
        malformed: list[str] = []
        kept: list[str] = []
        position = start = 0
        while opening := self.family.opening.search(text, start):
            try:
                found, end = self.family.read(text, opening.end(), schemas)
                end = self._closed(text, end)
                calls += [_tool_call(call, text, len(calls) + index) for index, call in enumerate(found)]
            except (ValueError, RecursionError) as error:  # the latter from brackets without end
                malformed.append(f"the tool call at character {opening.start()} cannot be read: {error}")
                start = max(opening.end(), opening.start() + 1)
                continue
            kept.append(text[position : opening.start()])
            position = start = end
        content = "".join([*kept, text[position:]])
        return ParsedAnswer(content.strip() if calls else text, tuple(calls), tuple(malformed))

    def safe_length(self, text: str) -> int:
        """Length of the part of an answer that cannot belong to a call and can be streamed."""
        if self.family.at_start:
            begun = text.lstrip()
            possible = not begun or any(begun.startswith(mark) or mark.startswith(begun) for mark in self.openings)
            return 0 if possible else len(text)
        found = [place for mark in self.openings if (place := text.find(mark)) >= 0]
        return min([*found, *(len(text) - _overlap(text, mark) for mark in self.openings)])

    def _closed(self, text: str, position: int) -> int:
        """Position behind the closing."""
        closing = self.family.closing.match(text, position)
        if closing is None and self.family.closed:
            raise ValueError(f"it is not closed, but followed by {text[position : position + 20]!r}")
        return closing.end() if closing else position


def find_format(render: Render) -> ToolCallFormat:
    """The format that a chat template writes calls in; Hermes for templates that write none."""
    for count in (2, 1):  # some templates allow one call a turn only
        for as_text in (False, True):
            for as_null in (False, True):
                answer = _rendered_calls(render, _CALLS[:count], as_text, as_null)
                for name, family in FAMILIES.items() if answer else ():
                    format = ToolCallFormat(name, family, True, as_text, as_null)
                    if answer and _reads_back(format, answer, _CALLS[:count]):
                        return format
    return DEFAULT_FORMAT


DEFAULT_FORMAT = ToolCallFormat("hermes", FAMILIES["hermes"])
"""What most models were trained on, for templates that write no calls: a prompt may ask for it in words."""

_QUESTION = "sentinel question"
_ARGUMENTS: dict[str, tuple[str, Json]] = {
    "quartz": ("string", "violet zebra"),
    "digits": ("string", "0075"),
    "count": ("integer", -42),
    "ratio": ("number", 2.5),
    "flag": ("boolean", True),
    "list": ("array", ["amber", 3, False]),
    "table": ("object", {"inner": "walnut", "deep": {"size": 1}}),
}
_CALLS = (
    ReadCall("sentinel_first", {name: value for name, (_, value) in _ARGUMENTS.items()}),
    ReadCall("sentinel_second", {"quartz": "orange lemur"}),
)
_TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": call.name,
            "description": "A sentinel.",
            "parameters": {
                "type": "object",
                "properties": {name: {"type": _ARGUMENTS[name][0], "description": name} for name in call.arguments},
                "required": list(call.arguments),
            },
        },
    }
    for call in _CALLS
]


def _rendered_calls(render: Render, calls: Sequence[ReadCall], as_text: bool, as_null: bool) -> str | None:
    """An answer that makes these calls, as the template writes it; None where it refuses."""
    question = {"role": "user", "content": _QUESTION}
    form = [
        {
            "id": f"sentinel{number}",  # Mistral's templates want nine characters
            "type": "function",
            "function": {
                "name": call.name,
                "arguments": json.dumps(call.arguments) if as_text else dict(call.arguments),
            },
        }
        for number, call in enumerate(calls)
    ]
    answer = {"role": "assistant", "content": None if as_null else "", "tool_calls": form}
    try:
        prompt = render([question], _TOOLS, True)
        whole = render([question, answer], _TOOLS, False)
    except Exception:  # templates raise errors of their own, and Python's of any kind
        return None
    if whole.startswith(prompt):
        return whole[len(prompt) :]
    return whole.rpartition(_QUESTION)[2]


def _reads_back(format: ToolCallFormat, answer: str, calls: Sequence[ReadCall]) -> bool:
    found = format.parse(answer, _TOOLS).calls
    read = [(call.name, json.loads(call.arguments)) for call in found]
    return read == [(call.name, call.arguments) for call in calls]


def _schemas(tools: Sequence[Mapping[str, Json]]) -> Schemas:
    """The parameters of each tool; what is not as it should be counts as a tool without any."""
    schemas: dict[str, Mapping[str, Json]] = {}
    for tool in tools:
        function = tool.get("function", tool)
        parameters = function.get("parameters") if isinstance(function, Mapping) else None
        properties = parameters.get("properties") if isinstance(parameters, Mapping) else None
        if isinstance(properties, Mapping) and isinstance(function.get("name"), str):
            schemas[function["name"]] = properties
    return schemas


def _tool_call(call: ReadCall, text: str, index: int) -> ToolCall:
    """The call with an id: the model's own, or one that the same answer always gets."""
    made = hashlib.sha256(f"{index}:{text}".encode("utf-8", "surrogatepass")).hexdigest()[:9]
    arguments = json.dumps(call.arguments, ensure_ascii=False, allow_nan=False)
    try:
        (call.name + arguments).encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"half a character: {error.object[error.start : error.end]!r}") from None
    return ToolCall(call.id or made, call.name, arguments)


def _overlap(text: str, mark: str) -> int:
    """Length of the longest end of the text that the mark may begin with."""
    return next((size for size in range(min(len(text), len(mark)), 0, -1) if text.endswith(mark[:size])), 0)
