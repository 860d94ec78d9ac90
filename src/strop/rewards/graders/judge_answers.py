"""What a judge wrote, read as JSON without being talked into anything."""

from __future__ import annotations

import json
import re
from typing import NoReturn

from strop.types import Json

_THOUGHT = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)
_FENCED = re.compile(r"```(?:json)?[ \t]*\n(?P<inside>[^`]*)```", re.IGNORECASE)


class Unreadable(ValueError):
    """An answer that is no verdict; the message says what is wrong with it."""


def parse_answer(text: str) -> Json:
    """Read the JSON value that an answer is, thoughts before it and a fence around it aside.

    It must be all of the answer: a judge may quote the JSON that a candidate wrote, and picking
    one of two would let the candidate score itself. Raises Unreadable.
    """
    text = without_thoughts(text)
    fenced = _FENCED.fullmatch(text)
    try:
        return json.loads(fenced["inside"] if fenced else text, object_pairs_hook=_unique, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        if isinstance(error, Unreadable):
            raise
        raise Unreadable("it is empty" if not text else "it is not JSON without other text") from None


def without_thoughts(text: str) -> str:
    """The answer without what the judge thought aloud before it."""
    return _THOUGHT.sub("", text, count=1).strip()


def _unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise Unreadable("it has a key twice")
    return found


def _no_number(name: str) -> NoReturn:
    raise Unreadable(f"{name} is not a number")
