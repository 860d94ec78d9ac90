"""Where sampler, environment and rewards meet: one row becomes one scored group."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Iterable
from typing import Protocol

from strop.seeds import derive_seed
from strop.types import Environment, Group, Rollout, Row, SamplingParams


class RolloutScorer(Protocol):
    """Scores one rollout; `rewards.scorer.Scorer` is the one in use."""

    async def score(self, row: Row, rollout: Rollout, seed: int) -> Rollout:
        """The rollout with its reward, or with the failure that kept it from being scored."""


async def run_group(
    row: Row, count: int, params: SamplingParams, environment: Environment, scorer: RolloutScorer
) -> Group:
    """Play a row `count` times and score every rollout. `params.seed` fixes all chance in it.

    A rollout that failed while it was played has no answer to score, and keeps its failure.
    """
    seed = derive_seed(params.seed, row.id)
    group = await environment.play(row, count, dataclasses.replace(params, seed=seed))

    async def scored(rollout: Rollout) -> Rollout:
        return rollout if rollout.failure else await scorer.score(row, rollout, derive_seed(seed, rollout.index))

    return dataclasses.replace(group, rollouts=tuple(await asyncio.gather(*map(scored, group.rollouts))))


async def run_groups(
    rows: Iterable[Row],
    count: int,
    params: SamplingParams,
    environment: Environment,
    scorer: RolloutScorer,
    on_group: Callable[[Group], None] = lambda group: None,
) -> list[Group]:
    """All groups at once, in the order of the rows: the sampler batches them, each is scored as
    soon as it is sampled, and `on_group` hears of each as soon as it is scored."""

    async def one(row: Row) -> Group:
        group = await run_group(row, count, params, environment, scorer)
        on_group(group)
        return group

    return await asyncio.gather(*(one(row) for row in rows))
