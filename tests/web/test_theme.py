"""What every page has: here, what it says of what nobody foresaw."""

from __future__ import annotations

from strop.errors import Conflict
from strop.web.theme import once


def test_what_no_handler_caught_is_said_once_and_without_its_content() -> None:
    said: list[str] = []
    tell = once(said.append)
    for _ in range(3):  # a timer meets the same again and again
        tell(KeyError("rosebud"))
    assert len(said) == 1
    assert "KeyError" in said[0]
    assert "log" in said[0]
    assert "rosebud" not in said[0]


def test_what_the_server_says_is_said_in_its_words() -> None:
    said: list[str] = []
    once(said.append)(Conflict("pause it first"))
    assert said == ["pause it first"]
