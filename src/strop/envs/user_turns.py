"""A scripted user whose messages come from the row."""

from __future__ import annotations

from strop.envs.single_turn import opening_of
from strop.errors import DataError
from strop.types import Context, Message, Row, Turn


class UserTurns:
    """An `Environment` that sends the texts in `metadata.user_turns` one after another."""

    async def start(self, row: Row, seed: int) -> UserTurnsEpisode:
        """Start an episode. Raises DataError with the line if `user_turns` is not a list of texts."""
        metadata = row.fields.get("metadata")
        turns = metadata.get("user_turns", []) if isinstance(metadata, dict) else []
        if not isinstance(turns, list) or not all(isinstance(text, str) and text for text in turns):
            raise DataError(f"line {row.line}: metadata.user_turns: expected a list of texts, found {turns!r}")
        return UserTurnsEpisode(opening_of(row), turns)


class UserTurnsEpisode:
    """An `Episode` that ends after the last user turn is answered."""

    def __init__(self, opening: Context, user_turns: list[str]) -> None:
        self.opening = opening
        self._left = list(user_turns)

    async def step(self, turn: Turn) -> tuple[Message, ...] | None:
        """The user's next message; None after the last one."""
        return (Message("user", self._left.pop(0)),) if self._left else None

    async def close(self) -> None:
        """Do nothing."""
