"""Values as models write them: JSON, Python literals, and Gemma's notation, through one reader."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import NoReturn, TypeVar

from strop.types import Json

T = TypeVar("T")


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


DECODER = json.JSONDecoder(parse_constant=_refuse, strict=False)


CONSTANTS: Mapping[str, Json] = {
    "true": True,
    "True": True,
    "false": False,
    "False": False,
    "null": None,
    "None": None,
}
"""The words that stand for values, of JSON and of Python."""

_SPACE = re.compile(r"\s*")


def skip_space(text: str, position: int) -> int:
    """Position of the next character that is no space."""
    found = _SPACE.match(text, position)
    return found.end() if found else position


def expect(pattern: re.Pattern[str], text: str, position: int, expected: str) -> re.Match[str]:
    """The match of a pattern at a position; ValueError, naming what was expected, where there is none."""
    found = pattern.match(text, position)
    if found is None:
        raise ValueError(f"expected {expected} instead of {text[position : position + 20]!r}")
    return found


class Literals:
    """Reads values from a position on; every method raises ValueError where there is none."""

    _string = re.compile(r"""<\|"\|>(?P<raw>.*?)<\|"\|>|(?P<quoted>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')""", re.DOTALL)
    _number = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
    _name = re.compile(r"[A-Za-z_][\w.-]*")

    def __init__(self, text: str, position: int) -> None:
        self.text, self.position = text, position

    def take(self, mark: str) -> bool:
        """Go past a mark, and the space before it, where it stands here."""
        start = skip_space(self.text, self.position)
        if not self.text.startswith(mark, start):
            return False
        self.position = start + len(mark)
        return True

    def name(self) -> str:
        """A name of a function, an argument or a key."""
        return self._next(self._name, "a name")[0]

    def value(self) -> Json:
        """A value of any type."""
        if self.take("["):
            return self.items("]", self.value)
        if self.take("{"):
            return dict(self.items("}", self._pair))
        self.position = skip_space(self.text, self.position)
        if found := self._string.match(self.text, self.position):
            self.position = found.end()
            return found["raw"] if found["quoted"] is None else _unquote(found["quoted"])
        if found := self._number.match(self.text, self.position):
            self.position = found.end()
            return DECODER.decode(found[0])
        word = self._next(self._name, "a value")[0]
        if word not in CONSTANTS:
            raise ValueError(f"{word!r} is no value")
        return CONSTANTS[word]

    def items(self, closing: str, read: Callable[[], T]) -> list[T]:
        """What is between commas, up to the closing mark."""
        found: list[T] = []
        while not self.take(closing):
            found.append(read())
            if not self.take(","):
                if not self.take(closing):
                    raise ValueError(f"expected {closing!r} at {self.text[self.position : self.position + 20]!r}")
                break
        return found

    def call(self) -> tuple[str, dict[str, Json]]:
        """Name and arguments of `name(key=value, …)`."""
        name = self.name()
        if not self.take("("):
            raise ValueError(f"expected the arguments of {name}")
        return name, dict(self.items(")", self._keyword))

    def _keyword(self) -> tuple[str, Json]:
        name = self.name()
        if not self.take("="):
            raise ValueError(f"expected a value for {name}")
        return name, self.value()

    def _pair(self) -> tuple[str, Json]:
        self.position = skip_space(self.text, self.position)
        bare = self._name.match(self.text, self.position)
        key = self.name() if bare else self.value()
        if not isinstance(key, str) or not self.take(":"):
            raise ValueError("an object needs names with values")
        return key, self.value()

    def _next(self, pattern: re.Pattern[str], expected: str) -> re.Match[str]:
        found = expect(pattern, self.text, skip_space(self.text, self.position), expected)
        self.position = found.end()
        return found


def read_literal(text: str) -> Json:
    """The value that the whole text stands for; ValueError where it is none."""
    reader = Literals(text, 0)
    value = reader.value()
    if skip_space(text, reader.position) != len(text):
        raise ValueError("something follows the value")
    return value


_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "\n": "", **{mark: mark for mark in "\\/'\""}}


def _unquote(quoted: str) -> str:
    """The text of a string literal, with the escapes of JSON and the usual ones of Python."""
    if quoted[0] == '"':
        try:
            return str(DECODER.decode(quoted))  # knows pairs of surrogates
        except ValueError:
            pass

    def character(found: re.Match[str]) -> str:
        code = found[1] or found[2]
        return chr(int(code, 16)) if code else _ESCAPED.get(found[3], found[0])

    return _ESCAPE.sub(character, quoted[1:-1])
