"""A sign of life of a process in its folder: a server ends one that writes nothing for too long."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from strop.types import Completer, Context, Failure, SamplingParams, Turn


class BeatingCompleter:
    """A completer that touches a file with each answer: a step or a validation may take longer than the limit."""

    def __init__(self, completer: Completer, folder: Path) -> None:
        self._completer = completer
        self._file = folder / ".heartbeat"

    async def complete(self, context: Context, count: int, params: SamplingParams) -> Sequence[Turn | Failure]:
        """As the completer behind it does."""
        turns = await self._completer.complete(context, count, params)
        self._file.touch()
        return turns
