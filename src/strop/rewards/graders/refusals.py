"""From pydantic's errors to refusals that name the field, what was found and what is allowed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from strop.errors import InvalidRequest
from strop.rewards.graders.fields import described
from strop.types import Json

_OBJECTS = frozenset({"model_type", "model_attributes_type", "dict_type"})
_TEXTS = frozenset({"string_type", "string_unicode"})
_TAGS = frozenset({"union_tag_invalid", "union_tag_not_found"})


def refusal(error: ValidationError, value: Json, where: str) -> InvalidRequest:
    """Make the refusal of a value; its `param` is the path of the first field at fault, begun by `where`."""
    first = error.errors(include_url=False)[0]
    inner, why = _explained(first["type"], first["input"], first.get("ctx", {}), first["msg"])
    steps = first["loc"]
    if first["type"] == "missing":
        steps, inner = steps[:-1], (str(steps[-1]),)
    path = ".".join((where, *_path(value, steps), *inner))
    return InvalidRequest(f"{path}: {why}", param=path)


def _explained(kind: str, found: Json, context: dict[str, Any], message: str) -> tuple[Sequence[str], str]:
    """The keys inside the value that lead to the fault, and what is wrong there."""
    if kind == "fault":
        return context["at"], context["why"]
    if kind == "missing":
        return (), "missing"
    if kind in _OBJECTS:
        return (), f"expected an object, found {described(found)}"
    if kind in _TEXTS:
        return (), f"expected a string, found {described(found)}"
    if kind == "literal_error":
        return (), f"expected one of {_listed(context['expected'])}, found {described(found)}"
    if kind in _TAGS:
        return ("type",), _wrong_type(found.get("type"), context.get("expected_tags", ""))
    return (), f"{message[:1].lower()}{message[1:]}, found {described(found)}"


def _wrong_type(found: Json, known: str) -> str:
    if found is None:
        return "missing"
    if not isinstance(found, str) or not found:
        return f"expected a string, found {described(found)}"
    return f"unknown type {found!r}; expected one of {_listed(known)}"


def _listed(quoted: str) -> str:
    """`a, b, c` for pydantic's `'a', 'b' or 'c'`."""
    return quoted.replace("' or '", "', '").replace("'", "")


def _path(value: Json, steps: Sequence[str | int]) -> list[str]:
    """The steps that lead through the value; pydantic puts the names of chosen kinds between them."""
    path: list[str] = []
    for step in steps:
        is_key = isinstance(value, dict) and step in value
        if is_key or (isinstance(value, list) and isinstance(step, int) and step < len(value)):
            path.append(str(step))
            value = value[step]
    return path
