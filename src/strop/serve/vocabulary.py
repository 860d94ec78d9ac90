"""The bytes of each token: what log-probabilities are shown with."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from transformers import PreTrainedTokenizerBase

from strop.serve.generate import Alternative, Token

# Log-probability of a token that cannot be drawn: JSON has no minus infinity.
_IMPOSSIBLE = -9999.0


class Vocabulary:
    """Tokens of one tokenizer, by id."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._added = {id: str(token) for id, token in tokenizer.added_tokens_decoder.items()}
        self._is_byte_level = _is_byte_level(tokenizer)
        self._known: dict[int, bytes] = {}

    def token(self, id: int, logprob: float, alternatives: tuple[tuple[int, float], ...]) -> Token:
        """A drawn token and the likeliest ones in its place; its own number is the same in both."""
        likeliest = [(other, logprob if other == id else value) for other, value in alternatives]
        top = tuple(Alternative(*self._described(other, value)) for other, value in likeliest)
        return Token(*self._described(id, logprob), top)

    def _described(self, id: int, logprob: float) -> tuple[str, int, float, tuple[int, ...]]:
        own = self.bytes_of(id)
        return own.decode("utf-8", "replace"), id, max(logprob, _IMPOSSIBLE), tuple(own)

    @property
    def special(self) -> Sequence[str]:
        """The special tokens as text: what is left out of an answer."""
        return [str(token) for token in self._tokenizer.added_tokens_decoder.values() if token.special]

    def bytes_of(self, id: int) -> bytes:
        """What a token stands for; nothing for an id that the tokenizer does not use."""
        if id not in self._known:
            self._known[id] = self._bytes(id)
        return self._known[id]

    def _bytes(self, id: int) -> bytes:
        if id in self._added:
            return self._added[id].encode()
        piece: str | None = self._tokenizer.convert_ids_to_tokens(id)
        if piece is None:
            return b""
        if self._is_byte_level:
            letters = _byte_letters()
            return bytes(letters[letter] for letter in piece) if letters.keys() >= set(piece) else piece.encode()
        if byte := re.fullmatch("<0x([0-9A-F]{2})>", piece):
            return bytes.fromhex(byte[1])
        return piece.replace("▁", " ").encode()


def _is_byte_level(tokenizer: Any) -> bool:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    return backend is not None and b"ByteLevel" in backend.decoder.__getstate__()


@cache
def _byte_letters() -> dict[str, int]:
    """The letter that byte-level tokenizers write for each byte: itself where it can be seen, else
    one of those from U+0100 on."""
    seen = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    hidden = [byte for byte in range(256) if byte not in set(seen)]
    return {chr(byte): byte for byte in seen} | {chr(256 + n): byte for n, byte in enumerate(hidden)}
