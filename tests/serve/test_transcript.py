"""Pieces of text: whole characters, nothing of a stop string, and together the text of all ids."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from models import VOCABULARY, save_tokenizer
from strop.serve.transcript import Transcript
from strop.text import cut_at_stop

# Ids of the tiny byte-level tokenizer: special ones, bytes that are parts of characters, pairs of letters.
ids = st.lists(st.integers(0, VOCABULARY - 1), max_size=80)
texts = st.text(alphabet="abth <|/é€😀\n", min_size=1, max_size=4)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> PreTrainedTokenizerBase:
    folder = tmp_path_factory.mktemp("tokenizer")
    save_tokenizer(Path(folder))
    return AutoTokenizer.from_pretrained(folder)


def pieces(transcript: Transcript, token_ids: Sequence[int], at_once: int = 1) -> list[str]:
    """What is sent when so many ids come at a time."""
    found = []
    for start in range(0, len(token_ids), at_once):
        for token_id in token_ids[start : start + at_once]:
            transcript.add(token_id)
        found.append(transcript.piece().text)
    return [*found, transcript.rest().text]


def decoder(tokenizer: PreTrainedTokenizerBase):  # type: ignore[no-untyped-def]
    return lambda token_ids: tokenizer.decode(token_ids, skip_special_tokens=True)


@settings(deadline=None, max_examples=300)
@given(token_ids=ids, stop=st.lists(texts, max_size=3), at_once=st.integers(1, 4))
def test_all_pieces_together_are_the_text_before_the_first_stop_string(
    tokenizer: PreTrainedTokenizerBase, token_ids: list[int], stop: list[str], at_once: int
) -> None:
    decode = decoder(tokenizer)
    found = pieces(Transcript(decode, stop), token_ids, at_once)
    assert "".join(found) == cut_at_stop(decode(token_ids), stop)


@settings(deadline=None, max_examples=300)
@given(text=st.text(alphabet="ab<|/é€😀\U0001f469\u200d", max_size=40), stop=st.lists(texts, max_size=3))
def test_no_piece_ends_inside_a_character_or_a_stop_string(
    tokenizer: PreTrainedTokenizerBase, text: str, stop: list[str]
) -> None:
    token_ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    transcript = Transcript(decoder(tokenizer), stop)
    sent = ""
    for token_id in token_ids:
        transcript.add(token_id)
        sent += transcript.piece().text
        assert "\ufffd" not in sent
        assert text.startswith(sent)
        for string in stop:
            assert string not in sent
            # What was sent may only end like a stop string begins where the text goes on otherwise.
            begun = next((n for n in range(len(string), 0, -1) if sent.endswith(string[:n])), 0)
            assert not (begun and text[len(sent) - begun :].startswith(string))


@settings(deadline=None, max_examples=200)
@given(token_ids=ids, stop=st.lists(texts, max_size=2))
def test_every_token_comes_once_and_with_its_text(
    tokenizer: PreTrainedTokenizerBase, token_ids: list[int], stop: list[str]
) -> None:
    decode = decoder(tokenizer)
    transcript = Transcript(decode, stop)
    text, count = "", 0
    for token_id in token_ids:
        transcript.add(token_id)
        piece = transcript.piece()
        text, count = text + piece.text, count + piece.tokens
        if count:  # the last one that is out begins in what was sent
            assert len(decode(token_ids[: count - 1]).rstrip("\ufffd")) <= len(text)
    count += transcript.rest().tokens
    assert count <= len(token_ids)
    whole = decode(token_ids)
    assert decode(token_ids[:count]).startswith(cut_at_stop(whole, stop).rstrip("\ufffd"))


def letters(token_ids: Sequence[int]) -> str:
    return "".join(chr(token_id) for token_id in token_ids)


def test_apossible_start_of_a_stop_string_waits_until_it_is_clear() -> None:
    transcript = Transcript(letters, ["</s>"])
    found = pieces(transcript, [ord(letter) for letter in "a<b</x</s>c"])
    assert found == ["a", "", "<b", "", "", "</x", "", "", "", "", "", ""]


def test_the_earliest_of_several_stop_strings_counts() -> None:
    assert "".join(pieces(Transcript(letters, ["de", "cd"]), [ord(letter) for letter in "abcdef"])) == "ab"


def test_what_was_held_back_is_sent_when_the_completion_ends() -> None:
    assert pieces(Transcript(letters, ["</s>"]), [ord(letter) for letter in "a</"]) == ["a", "", "", "</"]


def test_a_character_that_is_never_completed_is_sent_as_broken(tokenizer: PreTrainedTokenizerBase) -> None:
    token_ids = tokenizer("x😀", add_special_tokens=False)["input_ids"][:-1]
    assert "".join(pieces(Transcript(decoder(tokenizer)), token_ids)) == "x\ufffd"


def test_tokens_of_one_character_come_together(tokenizer: PreTrainedTokenizerBase) -> None:
    transcript = Transcript(decoder(tokenizer))
    counts = []
    for token_id in tokenizer("😀a", add_special_tokens=False)["input_ids"]:
        transcript.add(token_id)
        counts.append(transcript.piece().tokens)
    assert counts == [0, 0, 0, 4, 1]


def test_tokens_after_a_stop_string_and_an_end_of_turn_do_not_come(tokenizer: PreTrainedTokenizerBase) -> None:
    transcript = Transcript(decoder(tokenizer), ["."])
    for token_id in [*tokenizer("xy.z", add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]:
        transcript.add(token_id)
    assert transcript.rest().tokens == 2
    transcript = Transcript(decoder(tokenizer))
    for token_id in [*tokenizer("xy", add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]:
        transcript.add(token_id)
    assert transcript.rest().tokens == 2


def test_the_cost_of_a_token_does_not_grow_with_the_text() -> None:
    longest = 0

    def decode(token_ids: Sequence[int]) -> str:
        nonlocal longest
        longest = max(longest, len(token_ids))
        return letters(token_ids)

    assert "".join(pieces(Transcript(decode, ["xyz"]), [97] * 1000)) == "a" * 1000
    assert longest <= 32
