"""Texts with `{{ item.answer }}` and `{{ sample.output_json.a[0] }}` in them.

The values are put in in one pass: what a row or the model wrote is never itself taken for a
template.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from strop.rewards.grade_arguments import SAMPLE_NAMES
from strop.types import Json

NAMESPACES = ("item", "sample")

# After the namespace: `.name`, `[0]`, `["any name"]` or `['any name']`.
_STEP = re.compile(
    r"""\.(?P<name>[^\s.\[\]{}"']+)
      | \[\s*(?:(?P<index>[0-9]{1,9}) | "(?P<double>[^"]*)" | '(?P<single>[^']*)')\s*\]""",
    re.VERBOSE,
)
_NAMESPACE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FROM_THE_MODEL = frozenset({"output_json", "output_tools", "tool_calls"})


class TemplateError(ValueError):
    """A text that is no template; the message says why."""


class Absent(Exception):
    """A variable that this sample and item do not have.

    `by_model`: the model decided that, rather than whoever wrote rows and grader. `unparsed`:
    because its answer is no JSON.
    """

    def __init__(self, variable: Variable, why: str, *, unparsed: bool = False) -> None:
        super().__init__(f"{{{{ {variable} }}}}: {why}")
        self.by_model = variable.namespace == "sample" and not _FROM_THE_MODEL.isdisjoint(variable.path)
        self.unparsed = unparsed


@dataclass(frozen=True)
class Variable:
    """One `{{ … }}`: where to look, and the names and indices that lead to the value."""

    namespace: str
    path: tuple[str | int, ...]

    def __str__(self) -> str:
        return self.namespace + "".join(_shown(step) for step in self.path)

    def find(self, sample: Mapping[str, Json], item: Mapping[str, Json]) -> Json:
        """The value. Raises Absent."""
        value: Json = item if self.namespace == "item" else sample
        if value is sample and self.path[0] == "output_json" and sample.get("output_json") is None:
            raise Absent(self, "the answer is not JSON", unparsed=True)
        for depth, step in enumerate(self.path):
            inner = _inner(value, step)
            if inner is _NOTHING:
                here = Variable(self.namespace, self.path[:depth])
                raise Absent(self, f"there is no {step!r} in {here}, which is {_kind(value)}")
            value = inner
        return value


@dataclass(frozen=True)
class Template:
    """Texts and variables in turn."""

    parts: tuple[str | Variable, ...]

    def render(self, sample: Mapping[str, Json], item: Mapping[str, Json]) -> str:
        """The text with every value in its place: strings as they are, others as JSON. Raises Absent."""
        return "".join(part if isinstance(part, str) else text_of(part.find(sample, item)) for part in self.parts)


def parse_template(text: str) -> Template:
    """Raises TemplateError for braces that are not closed or hold no variable."""
    parts: list[str | Variable] = []
    position = 0
    while (start := text.find("{{", position)) >= 0:
        end = text.find("}}", start)
        if end < 0:
            raise TemplateError(f"'{{{{' at character {start + 1} is never closed by '}}}}'")
        parts += [text[position:start], _variable(text[start + 2 : end])]
        position = end + 2
    parts.append(text[position:])
    return Template(tuple(part for part in parts if part != ""))


def text_of(value: Json) -> str:
    """A string as it is, any other value as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _variable(inside: str) -> Variable:
    text = inside.strip()
    namespace = _NAMESPACE.match(text)
    if namespace is None or namespace[0] not in NAMESPACES:
        raise TemplateError(f"{{{{{_clipped(inside)}}}}} does not begin with item. or sample.")
    path: list[str | int] = []
    position = namespace.end()
    while position < len(text):
        step = _STEP.match(text, position)
        if step is None:
            raise TemplateError(f"{{{{{_clipped(inside)}}}}} is not a path like item.answer or sample.output_tools[0]")
        path.append(int(step["index"]) if step["index"] else _first(step["name"], step["double"], step["single"]))
        position = step.end()
    if not path:
        raise TemplateError(f"{{{{{_clipped(inside)}}}}} names nothing in {namespace[0]}; write {namespace[0]}.name")
    if namespace[0] == "sample" and path[0] not in SAMPLE_NAMES:
        raise TemplateError(f"a sample has no {path[0]!r}; {_nearest(path[0])}")
    return Variable(namespace[0], tuple(path))


_NOTHING = object()


def _inner(value: Json, step: str | int) -> Json:
    """What is inside a value under a name or an index, or `_NOTHING`."""
    if isinstance(value, list):
        index = int(step) if str(step).isascii() and str(step).isdecimal() else len(value)
        return value[index] if index < len(value) else _NOTHING
    return value.get(str(step), _NOTHING) if isinstance(value, dict) else _NOTHING


def _first(*found: str | None) -> str:
    return next(text for text in found if text is not None)


def _nearest(name: str | int) -> str:
    close = difflib.get_close_matches(str(name), SAMPLE_NAMES, n=1)
    return f"did you mean {close[0]!r}?" if close else f"it has {', '.join(SAMPLE_NAMES)}"


def _shown(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    return f".{step}" if _STEP.fullmatch(f".{step}") else f"['{step}']"


def _kind(value: Json) -> str:
    if value is None:
        return "null"
    if isinstance(value, dict):
        return f"an object with {_clipped(', '.join(value)) or 'nothing'}"
    return f"a list of {len(value)}" if isinstance(value, list) else f"the value {_clipped(text_of(value))}"


def _clipped(text: str, limit: int = 80) -> str:
    return text if len(text) <= limit else f"{text[:limit]}…"
