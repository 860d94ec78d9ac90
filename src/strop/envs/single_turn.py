"""The default environment: episodes end after one turn."""

from __future__ import annotations

from strop.types import Context, Message, Row, Turn


def opening_of(row: Row) -> Context:
    """The prompt of a row, with its tools."""
    return Context(row.messages, row.tools, where=f"line {row.line}")


class SingleTurn:
    """An `Environment` whose episodes end after the first turn."""

    async def start(self, row: Row, seed: int) -> SingleTurnEpisode:
        """Start an episode of a row."""
        return SingleTurnEpisode(opening_of(row))


class SingleTurnEpisode:
    """An `Episode` of one turn."""

    def __init__(self, opening: Context) -> None:
        self.opening = opening

    async def step(self, turn: Turn) -> tuple[Message, ...] | None:
        """End the episode."""
        return None

    async def close(self) -> None:
        """Do nothing."""
