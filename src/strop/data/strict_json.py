"""Strict JSON: parse a text into one object, or reject it.

Python's `json` accepts NaN, keeps the last of two equal keys and passes lone surrogates through; other parsers round
large integers. This module rejects anything that could silently change a value.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from typing import NoReturn

from strop.data.faults import Refused, clip, describe
from strop.types import Json

MAX_DEPTH = 64
"""Deepest nesting of objects and lists."""
MAX_INT_DIGITS = 4300
"""Maximum number of digits of an integer: Python's own limit for int from str."""

# A string, closed or not, or one bracket. Possessive: hostile input must not make it backtrack.
_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]', re.DOTALL)
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")


def parse_object(text: str) -> dict[str, Json]:
    """Parse a text into a JSON object. Raises Refused for anything else."""
    if text.count("{") + text.count("[") > MAX_DEPTH and nesting(text)[0] > MAX_DEPTH:
        raise Refused("nesting", f"nested more than {MAX_DEPTH} levels deep", "flatten it, or store it as a string")
    try:
        value = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise _explain(error) from None
    if not isinstance(value, dict):
        raise Refused("not an object", f"found {describe(value)}", "write one JSON object on each line")
    if _SURROGATE_ESCAPE.search(text):
        _refuse_surrogates(value, "")
    return value


def nesting(text: str) -> tuple[int, int]:
    """Maximum nesting depth of a JSON text, and the number of brackets still open at its end."""
    depth = deepest = 0
    for match in _TOKEN.finditer(text):
        first = text[match.start()]
        if first in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif first in "]}":
            depth -= 1
    return deepest, depth


def _explain(error: json.JSONDecodeError) -> Refused:
    """Describe a syntax error; columns start at 1."""
    text, at = error.doc, error.pos
    before, rest = text[:at].rstrip(), text[at:].lstrip()
    where = f"at column {len(text) - len(rest) + 1}"
    # Python 3.13 points at a trailing comma, 3.11 behind it.
    after_comma = rest[1:].lstrip() if rest.startswith(",") else rest if before.endswith(",") else None
    if error.msg == "Extra data":
        if rest.startswith(","):
            return Refused("syntax", f"a comma {where}, after the object", "remove it; rows are separated by newlines")
        return Refused("syntax", f"a second value {where}: {clip(rest, 20)!r}", "write each object on its own line")
    if after_comma and after_comma[0] in "]}":
        return Refused("syntax", f"a trailing comma before {after_comma[0]!r} {where}", "remove the comma")
    if not rest or error.msg.startswith("Unterminated string"):
        problem = f"the JSON ends inside the value that starts {where}" if rest else "the JSON ends too early"
        return Refused("syntax", problem, r"write each object on one line, line breaks in strings as \n")
    if error.msg.startswith("Invalid control character"):
        problem = f"a raw control character {text[at : at + 1]!r} at column {at + 1}"
        return Refused("syntax", problem, r"escape it, for example a tab as \t")
    return Refused("syntax", f"not JSON: {error.msg} {where}: {clip(rest, 20)!r}", "correct the line")


def _refuse_surrogates(value: Json, where: str) -> None:
    """Reject lone UTF-16 surrogates: no tokenizer, database or UTF-8 file can represent them."""
    if isinstance(value, str) and not value.isascii():
        half = next((char for char in value if "\ud800" <= char <= "\udfff"), None)
        if half is not None:
            problem = f"a lone surrogate \\u{ord(half):04x} in {clip(where) or 'a key'}"
            raise Refused("surrogate", problem, "write the whole character, or U+FFFD instead")
    elif isinstance(value, dict):
        for key, item in value.items():
            _refuse_surrogates(key, "")
            _refuse_surrogates(item, f"{where}.{key}" if where else key)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _refuse_surrogates(item, f"{where}[{index}]")


def _unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    """Build an object and reject duplicate keys."""
    result = dict(pairs)
    if len(result) < len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise Refused("duplicate key", f"the key {clip(twice)!r} occurs twice in one object", "keep one of them")
    return result


def _integer(text: str) -> int:
    digits = len(text.lstrip("-"))
    try:
        if digits <= MAX_INT_DIGITS:
            return int(text)
    except ValueError:
        pass  # the interpreter was started with a lower limit of its own
    raise Refused("number", f"an integer of {digits:,} digits", "write it as a string")


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise Refused("number", f"the number {clip(text)} is too large for a float", "write it as a string")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise Refused("number", f"{name} is not JSON", "write null, or the name as a string")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique, parse_int=_integer, parse_float=_float, parse_constant=_refuse_constant
)
