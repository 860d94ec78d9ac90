"""Fake completers: they say what a test tells them to, and remember what they were asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from strop.envs.single_turn import SingleTurn
from strop.rollout import Player
from strop.types import Context, Failure, Message, SamplingParams, StopReason, Turn, TurnTokens

Say = Callable[[Context, int], str | Turn | Failure]
"""What to answer a conversation with, by the index of the completion."""


@dataclass
class FakeCompleter:
    """A `Completer` without a model. Text becomes a turn of one token without an entropy."""

    say: Say = lambda context, index: f"answer {index}"
    asked: list[tuple[Context, int, SamplingParams]] = field(default_factory=list)

    async def complete(self, context: Context, count: int, params: SamplingParams) -> Sequence[Turn | Failure]:
        self.asked.append((context, count, params))
        return [self._turn(context, index) for index in range(count)]

    def _turn(self, context: Context, index: int) -> Turn | Failure:
        said = self.say(context, index)
        return turn(said, (5 + index,)) if isinstance(said, str) else said


def turn(
    text: str,
    ids: Sequence[int] = (5,),
    input_ids: Sequence[int] = (1, 2, 3),
    new_segment: bool = False,
    stop_reason: StopReason = StopReason.STOP,
) -> Turn:
    """An assistant turn with its tokens."""
    tokens = TurnTokens(tuple(input_ids), tuple(ids), (-0.5,) * len(ids), new_segment)
    return Turn(Message("assistant", text), stop_reason, len(ids), tokens, seconds=0.25)


def single_turn(completer: FakeCompleter) -> Player:
    """The completer in the default environment."""
    return Player(completer, SingleTurn())
