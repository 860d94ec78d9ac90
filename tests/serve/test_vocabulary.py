"""Bytes of tokens, for tokenizers that write bytes as letters and for those that write them as numbers."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from models import VOCABULARY, save_tokenizer
from strop.policy.fetch import resolve
from strop.serve.generate import Alternative, Token
from strop.serve.vocabulary import Vocabulary


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> PreTrainedTokenizerFast:
    folder = tmp_path_factory.mktemp("tokenizer")
    save_tokenizer(Path(folder))
    return AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize("text", ["the sea", "Ünïcödé €", "😀\u200d👩", "\n\t\x00"])
def test_bytes_of_the_tokens_are_those_of_the_text(tiny: PreTrainedTokenizerFast, text: str) -> None:
    vocabulary = Vocabulary(tiny)
    token_ids = tiny(text, add_special_tokens=False)["input_ids"]
    assert b"".join(vocabulary.bytes_of(id) for id in token_ids) == text.encode()


def test_bytes_of_the_default_models_tokens_are_those_of_the_text() -> None:
    tokenizer = AutoTokenizer.from_pretrained(resolve("smollm2-135m"))
    vocabulary = Vocabulary(tokenizer)
    text = "A 12-year-old's naïve 😀 «guess»: 漢字\n\n\tdone."
    token_ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert b"".join(vocabulary.bytes_of(id) for id in token_ids) == text.encode()


def test_special_tokens_have_their_name_and_unused_ids_nothing(tiny: PreTrainedTokenizerFast) -> None:
    vocabulary = Vocabulary(tiny)
    assert vocabulary.bytes_of(tiny.eos_token_id) == b"<|im_end|>"
    assert vocabulary.bytes_of(VOCABULARY + 5) == b""


def test_bytes_that_are_written_as_numbers_and_blanks_as_bars() -> None:
    names = ["<unk>", "▁the", "sea", "<0xE2>", "<0x82>", "<0xAC>"]
    tokenizer = Tokenizer(models.BPE(vocab={name: id for id, name in enumerate(names)}, merges=[], byte_fallback=True))
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    vocabulary = Vocabulary(PreTrainedTokenizerFast(tokenizer_object=tokenizer))
    assert b"".join(vocabulary.bytes_of(id) for id in range(1, 6)) == " thesea€".encode()


def test_a_token_is_shown_with_its_bytes_and_the_likeliest_ones(tiny: PreTrainedTokenizerFast) -> None:
    vocabulary = Vocabulary(tiny)
    first, *_ = tiny("€", add_special_tokens=False)["input_ids"]
    (letter,) = tiny("b", add_special_tokens=False)["input_ids"]
    token = vocabulary.token(first, -0.5, ((first, -0.5000001), (letter, -math.inf)))
    beside = (Alternative("\ufffd", first, -0.5, (0xE2,)), Alternative("b", letter, -9999.0, (98,)))
    assert token == Token("\ufffd", first, -0.5, (0xE2,), beside)
