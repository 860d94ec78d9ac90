"""Where completer, environment and rewards meet: one row becomes one scored group.

`run_group` and `run_groups` serve training and evaluation, `run_episodes` alone serves chat.
The first turns of a group share one prompt, so they are asked for together: the prompt goes
through the model once.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from strop.errors import ContextOverflow
from strop.seeds import derive_seed
from strop.types import (
    Completer,
    Context,
    Environment,
    Episode,
    Failure,
    Group,
    Rollout,
    Row,
    SamplingParams,
    StopReason,
    Turn,
)


class RolloutScorer(Protocol):
    """Scores one rollout; `rewards.scorer.Scorer` is the one in use."""

    async def score(self, row: Row, rollout: Rollout, seed: int) -> Rollout:
        """The rollout with its reward, or with the failure that kept it from being scored."""


@dataclasses.dataclass(frozen=True)
class Player:
    """Who plays: a model's completer in an environment, with a limit on its turns."""

    completer: Completer
    environment: Environment
    max_turns: int = 1
    ends_at_length: bool = True
    """Whether a turn that was cut off ends its rollout; a person goes on with it."""


async def run_episodes(row: Row, count: int, params: SamplingParams, player: Player) -> list[Rollout]:
    """Play a row `count` times to its end, unscored. `params.seed` fixes all chance in it.

    What the completer cannot produce becomes a failure of its rollout, never an exception;
    errors that no row would get past are raised.
    """
    episodes: list[Episode] = []
    try:
        for _ in range(count):
            episodes.append(await player.environment.start(row, params.seed))
        first = await _first_turns([episode.opening for episode in episodes], params, player.completer)
        plays = (
            _play(index, episode, turn, params, player)
            for index, (episode, turn) in enumerate(zip(episodes, first, strict=True))
        )
        return list(await asyncio.gather(*plays))
    finally:
        for episode in episodes:
            await episode.close()


async def run_group(row: Row, count: int, params: SamplingParams, player: Player, scorer: RolloutScorer) -> Group:
    """Play a row `count` times and score every rollout. `params.seed` fixes all chance in it.

    A rollout that failed while it was played has no answer to score, and keeps its failure.
    """
    seed = derive_seed(params.seed, row.id)
    rollouts = await run_episodes(row, count, dataclasses.replace(params, seed=seed), player)

    async def scored(rollout: Rollout) -> Rollout:
        return rollout if rollout.failure else await scorer.score(row, rollout, derive_seed(seed, rollout.index))

    return Group(row, tuple(await asyncio.gather(*map(scored, rollouts))))


async def run_groups(
    rows: Iterable[Row],
    count: int,
    params: SamplingParams,
    player: Player,
    scorer: RolloutScorer,
    on_group: Callable[[Group], None] = lambda group: None,
) -> list[Group]:
    """All groups at once, in the order of the rows: the sampler batches them, each is scored as
    soon as it is sampled, and `on_group` gets each as soon as it is scored."""

    async def one(row: Row) -> Group:
        group = await run_group(row, count, params, player, scorer)
        on_group(group)
        return group

    return await asyncio.gather(*(one(row) for row in rows))


async def _first_turns(
    openings: Sequence[Context], params: SamplingParams, completer: Completer
) -> list[Turn | Failure]:
    """The first turn of each episode; episodes with equal openings are asked for in one call."""
    members: dict[int, list[int]] = {}
    for index, opening in enumerate(openings):
        members.setdefault(openings.index(opening), []).append(index)
    calls = (_complete(openings[first], len(indices), params, completer) for first, indices in members.items())
    found: dict[int, Turn | Failure] = {}
    for indices, turns in zip(members.values(), await asyncio.gather(*calls), strict=True):
        found |= dict(zip(indices, turns, strict=True))
    return [found[index] for index in range(len(openings))]


async def _complete(
    context: Context, count: int, params: SamplingParams, completer: Completer
) -> Sequence[Turn | Failure]:
    try:
        return await completer.complete(context, count, params)
    except ContextOverflow as error:
        return [Failure("context", error.message)] * count


async def _play(index: int, episode: Episode, turn: Turn | Failure, params: SamplingParams, player: Player) -> Rollout:
    """Go on from the first turn to the end of the episode."""
    context = episode.opening
    turns: list[Turn] = []
    while True:
        if isinstance(turn, Failure):
            if turn.cause == "context" and turns:
                return _ended(index, turns, StopReason.CONTEXT)
            return _ended(index, turns, StopReason.STOP, turn)
        cut_off = player.ends_at_length and turn.stop_reason is StopReason.LENGTH
        observations = None if cut_off else await episode.step(turn)
        if observations is None:
            return _ended(index, [*turns, turn], turn.stop_reason)
        turns.append(dataclasses.replace(turn, observations=observations))
        if len(turns) >= player.max_turns:
            return _ended(index, turns, StopReason.MAX_TURNS)
        context = extended(context, turns[-1])
        # Of its own for each attempt and turn: all attempts share the group's seed.
        seed = derive_seed(params.seed, "turn", index, len(turns))
        (turn,) = await _complete(context, 1, dataclasses.replace(params, seed=seed), player.completer)


def extended(context: Context, turn: Turn) -> Context:
    """The conversation after a turn, with the ids that the next prompt may extend."""
    ids_T: tuple[int, ...] = ()
    if turn.tokens is not None:
        before = () if turn.tokens.new_segment else context.ids_T
        ids_T = before + turn.tokens.input_ids_T + turn.tokens.token_ids_T
    messages = (*context.messages, turn.message, *turn.observations)
    return dataclasses.replace(context, messages=messages, ids_T=ids_T)


def _ended(index: int, turns: Sequence[Turn], reason: StopReason, failure: Failure | None = None) -> Rollout:
    timing = {"sample": sum(turn.seconds for turn in turns)}
    return Rollout(index, tuple(turns), reason, failure=failure, timing=timing if turns else {})
