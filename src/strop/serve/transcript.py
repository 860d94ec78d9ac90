"""From token ids to the pieces of text that may be sent.

A piece has whole characters only, and nothing that a stop string may turn out to begin with.
All pieces together are the text of all ids, cut before the first stop string.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

# What a decoder writes for bytes that are no character, or not one yet.
_BROKEN = "\ufffd"

# Ids are decoded in windows, so that the cost of a token does not grow with the text.
_WINDOW = 16


@dataclass(frozen=True)
class Piece:
    """Text to send, and how many more tokens are out with it."""

    text: str
    tokens: int


class Transcript:
    """One completion as it grows."""

    def __init__(self, decode: Callable[[Sequence[int]], str], stop: Sequence[str] = ()) -> None:
        """`decode` gives the text of ids, U+FFFD for bytes that are no character."""
        self._decode = decode
        self._stop = stop
        self._window: list[int] = []
        self._boundary = 0  # in the window: all characters before are whole
        self._taken = 0  # characters of the window's text that were read
        self._read = 0  # characters that were read altogether
        self._held = ""  # read, but not sent
        self._starts: deque[int] = deque()  # of each token that is not out, in characters
        self._stopped = False

    @property
    def _sent(self) -> int:
        return self._read - len(self._held)

    def add(self, token_id: int) -> None:
        """Take in the next id."""
        self._starts.append(self._read)
        self._window.append(token_id)
        text = self._decode(self._window)
        whole = text.rstrip(_BROKEN)
        self._take(whole)
        if len(whole) == len(text):
            self._slide()

    def piece(self) -> Piece:
        """What can be sent now."""
        return self._piece(possible_start(self._held, self._stop))

    def rest(self) -> Piece:
        """What is left, once the completion has ended."""
        self._take(self._decode(self._window))
        return self._piece(0)

    def _take(self, text: str) -> None:
        """Read on in the text of the window."""
        new = text[self._taken :]
        self._taken = max(self._taken, len(text))
        if not self._stopped:
            self._read += len(new)
            self._held += new

    def _slide(self) -> None:
        """Start the window later; what was before the last boundary is done with."""
        if len(self._window) >= _WINDOW:
            del self._window[: self._boundary]
            self._taken = len(self._decode(self._window))
        self._boundary = len(self._window)

    def _piece(self, keep: int) -> Piece:
        ends = [position for stop in self._stop if (position := self._held.find(stop)) >= 0]
        if ends:
            self._stopped, text = True, self._held[: min(ends)]
            self._read = self._sent + len(text)
            self._held = ""
        else:
            text = self._held[: len(self._held) - keep]
            self._held = self._held[len(text) :]
        return Piece(text, self._tokens_out())

    def _tokens_out(self) -> int:
        """Tokens that begin in what was sent, and were not counted before."""
        count = 0
        while self._starts and self._starts[0] < self._sent:
            self._starts.popleft()
            count += 1
        return count


def possible_start(text: str, strings: Sequence[str]) -> int:
    """Length of the longest end of the text that one of the strings could begin with."""
    longest = max((len(string) for string in strings), default=0)
    for length in range(min(longest - 1, len(text)), 0, -1):
        if any(string.startswith(text[-length:]) for string in strings):
            return length
    return 0
