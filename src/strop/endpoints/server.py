"""Where an endpoint is, and the key that it gets."""

from __future__ import annotations

from dataclasses import dataclass, field

MAX_SAID_CHARS = 500
"""Of what a server says, in messages."""
_SECRET_CHARS = 5
"""Shorter keys are placeholders such as `none`."""


@dataclass(frozen=True)
class Server:
    """An OpenAI-compatible endpoint."""

    base_url: str
    key: str | None = field(default=None, repr=False)
    key_name: str | None = None
    """Variable that holds the key, for messages."""

    def clean(self, text: str) -> str:
        """Text of the server as one line of bounded length, without the key if the server repeats it."""
        if self.key and len(self.key) >= _SECRET_CHARS:
            text = text.replace(self.key, f"[redacted {self.key_name}]" if self.key_name else "[redacted]")
        line = " ".join(text.encode("utf-8", "replace").decode().split())
        return line if len(line) <= MAX_SAID_CHARS else line[:MAX_SAID_CHARS] + "…"
