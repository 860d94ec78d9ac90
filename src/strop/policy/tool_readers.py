"""The ways in which models write tool calls: one reader for each.

A reader starts behind the opening of a call and returns the calls with the position behind
the last character that it read. It raises ValueError where the text is not what it expects.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from strop.policy.literals import CONSTANTS, DECODER, Literals, expect, read_literal, skip_space
from strop.types import Json


@dataclass(frozen=True)
class ReadCall:
    """A call as a reader found it."""

    name: str
    arguments: Mapping[str, Json]
    id: str | None = None
    """Where the family writes one."""


Schemas = Mapping[str, Mapping[str, Json]]
"""For each function the schemas of its parameters, by name."""

Reader = Callable[[str, int, Schemas], tuple[list[ReadCall], int]]


def _read_json(text: str, position: int) -> tuple[Json, int]:
    return DECODER.raw_decode(text, skip_space(text, position))


def _as_object(value: Json) -> Mapping[str, Json]:
    """Arguments as an object; some models write them as JSON text once more."""
    if isinstance(value, str):
        value = DECODER.decode(value)
    if not isinstance(value, dict):
        raise ValueError(f"the arguments are {type(value).__name__}, expected an object")
    return value


def _call(form: Json) -> ReadCall:
    """A call from `{"name": …, "arguments": …}`, under the names that the families use."""
    if not isinstance(form, dict):
        raise ValueError(f"a call is {type(form).__name__}, expected an object")
    form = form["function"] if isinstance(form.get("function"), dict) else form
    name = form.get("name", form.get("tool_name"))
    if not isinstance(name, str) or not name:
        raise ValueError("the call has no name")
    arguments = form.get("arguments", form.get("parameters", {}))
    found_id = form.get("id")
    return ReadCall(name, _as_object(arguments), found_id if isinstance(found_id, str) else None)


def read_json_calls(text: str, position: int, schemas: Schemas) -> tuple[list[ReadCall], int]:
    """One JSON object, or a list of them."""
    value, end = _read_json(text, position)
    return [_call(form) for form in (value if isinstance(value, list) else [value])], end


def read_json_sequence(text: str, position: int, schemas: Schemas) -> tuple[list[ReadCall], int]:
    """JSON objects one after the other, with a semicolon or space between them."""
    calls: list[ReadCall] = []
    while True:
        value, position = _read_json(text, position)
        calls.append(_call(value))
        following = re.compile(r"\s*;?\s*(?=\{)").match(text, position)
        if following is None:
            return calls, position
        position = following.end()


def named_json(header: re.Pattern[str], name: str) -> Reader:
    """A reader of a header that holds the name, and JSON arguments behind it."""

    def read(text: str, position: int, schemas: Schemas) -> tuple[list[ReadCall], int]:
        found = expect(header, text, position, name)
        groups = found.groupdict()
        called = groups["name"] or groups.get("late_name")
        if not called:
            raise ValueError("the call has no name")
        arguments, end = _read_json(text, found.end())
        if groups.get("fence"):
            end = expect(re.compile(r"\s*```"), text, end, "the end of the code block").end()
        return [ReadCall(called, _as_object(arguments), groups.get("id"))], end

    return read


def read_mistral(text: str, position: int, schemas: Schemas) -> tuple[list[ReadCall], int]:
    """A JSON list of calls, as older templates write it, or a name with its arguments."""
    return (read_json_calls if text[position] == "[" else _MISTRAL_NAMED)(text, position, schemas)


_MISTRAL_NAMED = named_json(
    re.compile(r"(?P<name>[\w.-]+)(?:\[CALL_ID\](?P<id>\w+))?(?:\[ARGS\])?(?=\s*\{)"), "a name and arguments"
)


def read_tagged(name: re.Pattern[str], parameter: re.Pattern[str]) -> Reader:
    """A reader of a name and parameters in tags, whose values are plain text."""

    def read(text: str, position: int, schemas: Schemas) -> tuple[list[ReadCall], int]:
        header = expect(name, text, position, "the name of a function")
        called, position = header["name"].strip(), header.end()
        types = schemas.get(called, {})
        arguments: dict[str, Json] = {}
        while found := parameter.match(text, position):
            key = found["key"].strip()
            arguments[key] = _typed(found["value"], types.get(key), found.groupdict().get("is_text"))
            position = found.end()
        return [ReadCall(called, arguments)], position

    return read


def _typed(text: str, schema: Json, is_text: str | None = None) -> Json:
    """The value that a parameter's text stands for: text itself where the schema, or the call, says
    so, and otherwise the JSON or Python literal that it is, or text where it is none."""
    wanted = schema.get("type") if isinstance(schema, Mapping) else None
    kinds = [wanted] if isinstance(wanted, str) else wanted if isinstance(wanted, list) else []
    if is_text == "true" or kinds == ["string"]:
        return text
    if text in CONSTANTS:
        return CONSTANTS[text]
    if "string" in kinds and is_text != "false":
        return text
    try:
        return read_literal(text)
    except ValueError:
        return text


PREFIX = r"(?:[\w-]+:|｜DSML｜)?"
_read_invoke = read_tagged(
    re.compile(rf'\s*<{PREFIX}invoke name="(?P<name>[^"]+)">\s*'),
    re.compile(
        rf'<{PREFIX}parameter name="(?P<key>[^"]+)"(?: string="(?P<is_text>true|false)")?>(?P<value>.*?)'
        rf"</{PREFIX}parameter>\s*(?=<{PREFIX}parameter |</{PREFIX}invoke>)",
        re.DOTALL,
    ),
)


def read_invocations(text: str, position: int, schemas: Schemas) -> tuple[list[ReadCall], int]:
    """One `<invoke name="…">` after the other."""
    calls: list[ReadCall] = []
    begin, finish = re.compile(rf"\s*<{PREFIX}invoke "), re.compile(rf"</{PREFIX}invoke>")
    while begin.match(text, position):
        found, end = _read_invoke(text, position, schemas)
        position = expect(finish, text, end, "the end of the call").end()
        calls += found
    return calls, position


def read_python_calls(text: str, position: int, schemas: Schemas) -> tuple[list[ReadCall], int]:
    """`[name(key=value, …), …]`, where some templates write every value as a string."""
    reader = Literals(text, position)
    if not reader.take("["):
        raise ValueError("expected a list of calls")
    calls = reader.items("]", reader.call)
    if not calls:
        raise ValueError("the list of calls is empty")
    return [ReadCall(name, _retyped(arguments, schemas.get(name, {}))) for name, arguments in calls], reader.position


def _retyped(arguments: Mapping[str, Json], types: Mapping[str, Json]) -> dict[str, Json]:
    return {
        key: _typed(value, types[key]) if isinstance(value, str) and key in types else value
        for key, value in arguments.items()
    }


def read_gemma(text: str, position: int, schemas: Schemas) -> tuple[list[ReadCall], int]:
    """`call:name{key:value, …}`"""
    reader = Literals(text, position)
    if not reader.take("call:"):
        raise ValueError("expected call:")
    name = reader.name()
    arguments = reader.value()
    return [ReadCall(name, _as_object(arguments))], reader.position
