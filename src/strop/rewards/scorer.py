"""All reward functions of a run together: from a rollout to its reward."""

from __future__ import annotations

import asyncio
import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from strop.config import RewardConfig
from strop.rewards.load import load_reward
from strop.rewards.reward_function import Outcome, RewardFunction
from strop.types import Failure, Reward, Rollout, Row


@dataclass(frozen=True)
class Weighted:
    """A reward function and its factor in the total; 0 means logged, not trained on."""

    function: RewardFunction
    weight: float


class Scorer:
    """Asks every reward function about a rollout and adds up what they say.

    Use as `async with`; entering raises RewardError if a function cannot be loaded.
    """

    def __init__(self, rewards: Sequence[Weighted]) -> None:
        self._rewards = tuple(rewards)

    @classmethod
    def from_config(cls, configs: Iterable[RewardConfig]) -> Scorer:
        """A scorer for the `[[rewards]]` tables of a configuration."""
        return cls([Weighted(load_reward(config), config.weight) for config in configs])

    async def __aenter__(self) -> Self:
        try:
            for reward in self._rewards:
                await reward.function.start()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        for reward in self._rewards:
            await reward.function.close()

    async def score(self, row: Row, rollout: Rollout, seed: int) -> Rollout:
        """The rollout with its reward; or with its failure, if a function that counts failed."""
        outcomes = await asyncio.gather(*(reward.function.score(row, rollout, seed) for reward in self._rewards))
        seconds = max((outcome.seconds for outcome in outcomes), default=0.0)
        result = self._combine(outcomes)
        return dataclasses.replace(
            rollout,
            reward=result if isinstance(result, Reward) else None,
            failure=result if isinstance(result, Failure) else None,
            logs=self._logs(outcomes),
            timing={**rollout.timing, "reward": seconds},
        )

    def _combine(self, outcomes: Sequence[Outcome]) -> Reward | Failure:
        total = 0.0
        components: dict[str, float] = {}
        weights: dict[str, float] = {}
        for reward, outcome in zip(self._rewards, outcomes, strict=True):
            name = reward.function.name
            if outcome.value is None and outcome.failure and reward.weight:
                return dataclasses.replace(outcome.failure, message=f"{name}: {outcome.failure.message}")
            parts = {} if outcome.value is None else self._named(name, outcome.value)
            logged = {f"{name}/{key}": part for key, part in outcome.logged.items()}
            components |= parts | logged
            weights |= dict.fromkeys(parts, reward.weight) | dict.fromkeys(logged, 0.0)
            if reward.weight:
                total += reward.weight * sum(parts.values())
        if not math.isfinite(total):
            return Failure("nan", f"the weighted sum of {components} is {total}; return smaller numbers")
        return Reward(total, components, weights)

    def _named(self, name: str, value: float | Mapping[str, float]) -> dict[str, float]:
        """Scores by component name. Several functions may use one key, so then it gets the function's name too."""
        if not isinstance(value, Mapping):
            return {name: value}
        return dict(value) if len(self._rewards) == 1 else {f"{name}/{key}": part for key, part in value.items()}

    def _logs(self, outcomes: Sequence[Outcome]) -> str:
        """What the functions printed, by function if there are several, and failures that cost nothing."""
        sections = []
        for reward, outcome in zip(self._rewards, outcomes, strict=True):
            text = outcome.logs
            if outcome.failure and not reward.weight:
                text += f"[failed: {outcome.failure.message}]\n{outcome.failure.detail}"
            if text:
                sections.append(text if len(self._rewards) == 1 else f"[{reward.function.name}]\n{text}")
        return "\n".join(section.rstrip("\n") for section in sections)
