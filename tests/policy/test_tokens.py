"""Texts of tokens."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer

from models import save_tiny_model
from strop.policy.tokens import token_texts


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model("llama", tmp_path_factory.mktemp("tokens") / "model")


@pytest.mark.parametrize("text", ["plain words", "Héllo 😀 wörld", "<|im_start|>user\nhi<|im_end|>", "  spaces  ", ""])
def test_texts_of_tokens_joined_are_the_text(model: Path, text: str) -> None:
    ids = Tokenizer.from_file(str(model / "tokenizer.json")).encode(text, add_special_tokens=False).ids
    texts = token_texts(model, ids)
    assert texts is not None
    assert (len(texts), "".join(texts)) == (len(ids), text)


def test_a_character_belongs_to_the_token_that_completes_it(model: Path) -> None:
    ids = Tokenizer.from_file(str(model / "tokenizer.json")).encode("😀", add_special_tokens=False).ids
    texts = token_texts(model, ids)
    assert texts == [""] * (len(ids) - 1) + ["😀"]


def test_without_a_tokenizer_there_are_no_texts(model: Path, tmp_path: Path) -> None:
    assert token_texts(tmp_path, [1, 2]) is None
    (tmp_path / "tokenizer.json").write_text("{}")
    assert token_texts(tmp_path, [1, 2]) is None
    assert token_texts(model, [-1]) is None
