"""Where a stop string ends an answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strop.text import cut_at_stop, text_turn
from strop.types import Message, StopReason


@pytest.mark.parametrize(
    ("text", "stop", "expected"),
    [
        ("one two", (), "one two"),
        ("one two", ("three",), "one two"),
        ("one two one", ("one",), ""),
        ("one two three", ("three", "two"), "one "),
        ("é→ö", ("→",), "é"),
        ("", ("x",), ""),
    ],
)
def test_the_first_stop_string_in_the_text_cuts_it(text: str, stop: tuple[str, ...], expected: str) -> None:
    assert cut_at_stop(text, stop) == expected


@given(text=st.text("ab é", max_size=12), stop=st.lists(st.text("ab é", min_size=1, max_size=3), max_size=3))
def test_what_is_left_is_the_longest_beginning_before_any_stop_string(text: str, stop: list[str]) -> None:
    cut = cut_at_stop(text, stop)
    assert text.startswith(cut)
    assert not any(string in cut for string in stop)
    assert cut == text or any(text[len(cut) :].startswith(string) for string in stop)


def test_a_turn_of_text_is_cut_and_has_the_length_that_the_server_counted() -> None:
    turn = text_turn(Message("assistant", "yes END no"), StopReason.STOP, 9, 1.5, ("END",))
    assert (turn.message.content, turn.length, turn.tokens, turn.seconds) == ("yes ", 9, None, 1.5)
