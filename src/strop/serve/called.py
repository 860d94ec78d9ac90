"""Text of a completion that may call tools: what can be sent while it grows, and its calls at the end."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from strop.policy.tool_calls import ToolCallFormat
from strop.serve.transcript import possible_start
from strop.types import Json, ToolCall


class CallText:
    """Holds text back from where a call may have begun."""

    def __init__(self, calls: ToolCallFormat, tools: Sequence[Mapping[str, Json]], special: Sequence[str]) -> None:
        """`special` are the special tokens as text: models mark calls with them, and clients see none."""
        self._calls, self._tools = calls, tools
        self._specials = special
        self._special = re.compile("|".join(map(re.escape, special)) or r"(?!)")
        self._text = ""
        self._sent = 0
        self._shown = ""

    def add(self, text: str) -> str:
        """Take in more text, special tokens included; what of it all can be sent now."""
        self._text += text
        safe = self._calls.safe_length(self._text)
        safe -= possible_start(self._text[:safe], self._specials)
        return self._show(max(safe, self._sent))

    def end(self) -> tuple[str, str, tuple[ToolCall, ...]]:
        """What is left to send, the whole content, and the calls."""
        found = self._calls.parse(self._text, self._tools)
        if not found.calls:
            rest = self._show(len(self._text))
            return rest, self._shown, ()
        content = self._plain(found.content).strip()
        sent = self._shown.strip()
        return content[len(sent) :] if content.startswith(sent) else "", content, found.calls

    def _show(self, end: int) -> str:
        shown = self._plain(self._text[self._sent : end])
        self._sent = end
        self._shown += shown
        return shown

    def _plain(self, text: str) -> str:
        return self._special.sub("", text)
