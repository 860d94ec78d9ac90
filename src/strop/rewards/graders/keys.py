"""One JSON object of a request, read key by key."""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Sequence
from typing import Any, TypeVar, overload

from strop.errors import InvalidRequest
from strop.types import Json

Default = TypeVar("Default")
_REQUIRED: Any = object()

IGNORED = ("id", "pass_threshold", "invalid_grade")
"""Keys of evals, which documents show on graders for fine-tuning too; and Azure's grade for failures,
which here give none at all."""


def refuse(where: str, why: str) -> InvalidRequest:
    """The error for the value at a place."""
    return InvalidRequest(f"{where}: {why}", param=where)


class Keys:
    """Takes values out of an object, checks their types, and refuses what is left at the end.

    A key whose value is null counts as missing. All methods raise InvalidRequest.
    """

    def __init__(self, value: Json, where: str) -> None:
        if not isinstance(value, dict):
            raise refuse(where, f"expected an object, found {_described(value)}")
        self.where = where
        self._values = value
        self._known: dict[str, None] = dict.fromkeys(("type", "name"))

    def at(self, key: str) -> str:
        """The place of a key, for messages."""
        return f"{self.where}.{key}"

    def has(self, key: str) -> bool:
        """Whether the key is there."""
        return self._values.get(key) is not None

    @property
    def type(self) -> str:
        """The value of `type`."""
        return self.text("type")

    def name(self) -> str:
        """The value of `name`, by default the type."""
        return self.text("name", default=self.type)

    def skip(self, key: str) -> None:
        """Take a key for known whatever it holds."""
        self._known[key] = None

    def value(self, key: str) -> Json:
        """Any value but null."""
        self.skip(key)
        value = self._values.get(key)
        if value is None:
            raise refuse(self.at(key), "missing")
        return value

    @overload
    def text(self, key: str) -> str: ...
    @overload
    def text(self, key: str, *, default: Default) -> str | Default: ...
    def text(self, key: str, *, default: Any = _REQUIRED) -> Any:
        """A string that is not empty."""
        value = self._get(key, default)
        if value is default:
            return value
        if not isinstance(value, str) or not value:
            raise refuse(self.at(key), f"expected a text, found {_described(value)}")
        return value

    @overload
    def choice(self, key: str, among: Sequence[str]) -> str: ...
    @overload
    def choice(self, key: str, among: Sequence[str], *, default: Default) -> str | Default: ...
    def choice(self, key: str, among: Sequence[str], *, default: Any = _REQUIRED) -> Any:
        """One of several strings."""
        value = self.text(key, default=default)
        if value is not default and value not in among:
            raise refuse(self.at(key), f"expected one of {', '.join(among)}, found {value!r}")
        return value

    def texts(self, key: str) -> list[str]:
        """A list of strings, at least one."""
        value = self.value(key)
        if not isinstance(value, list) or not value or not all(isinstance(text, str) and text for text in value):
            raise refuse(self.at(key), f"expected a list of texts, found {_described(value)}")
        return value

    def number(self, key: str, low: float, high: float, *, whole: bool = False, default: Default) -> float | Default:
        """A number within bounds."""
        value = self._get(key, default)
        if value is default:
            return default
        kind = "whole number" if whole else "number"
        if not _is_number(value) or not low <= value <= high or (whole and value != int(value)):
            raise refuse(self.at(key), f"expected a {kind} from {low:g} to {high:g}, found {_described(value)}")
        return int(value) if whole else value

    def numbers(self, key: str, default: tuple[float, ...]) -> tuple[float, ...]:
        """A list of as many numbers as the default has."""
        if not self.has(key):
            self.skip(key)
            return default
        value = self.value(key)
        if not isinstance(value, list) or len(value) != len(default) or not all(map(_is_number, value)):
            raise refuse(self.at(key), f"expected {len(default)} numbers, found {_described(value)}")
        return tuple(map(float, value))

    def table(self, key: str) -> Keys | None:
        """An object inside this one."""
        value = self._get(key, None)
        return None if value is None else Keys(value, self.at(key))

    def finish(self) -> None:
        """Refuse keys that nobody has asked for."""
        for key in self._values:
            if key not in self._known and key not in IGNORED:
                close = difflib.get_close_matches(key, self._known, n=1)
                hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(self._known)}"
                raise refuse(self.at(key), f"unknown key; {hint}")

    def _get(self, key: str, default: Any) -> Any:
        return self.value(key) if default is _REQUIRED or self.has(key) else self._default(key, default)

    def _default(self, key: str, default: Any) -> Any:
        self.skip(key)
        return default


def _is_number(value: Json) -> bool:
    if isinstance(value, int):
        return not isinstance(value, bool) and abs(value) < 2**64
    return isinstance(value, float) and math.isfinite(value)


def _described(value: Json) -> str:
    if isinstance(value, str):
        return f"the text {value[:60]!r}" if value else "an empty text"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    return json.dumps(value)[:60]
