"""Texts of single tokens, for display. Uses tokenizers but not torch."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream


def token_texts(folder: Path, ids: Sequence[int]) -> list[str] | None:
    """The text that each token adds, special tokens included; joined they are the whole text.

    A token that ends within a character adds nothing, and the one that completes it the character.
    None where the folder of the model holds no tokenizer that can be used here.
    """
    file = folder / "tokenizer.json"
    try:
        tokenizer = _loaded(str(file), file.stat().st_mtime_ns)
        stream = DecodeStream(skip_special_tokens=False)
        return [stream.step(tokenizer, number) or "" for number in ids]
    except Exception:  # the library raises nothing more precise
        return None


@functools.lru_cache(maxsize=4)
def _loaded(file: str, changed: int) -> Tokenizer:
    return Tokenizer.from_file(file)
