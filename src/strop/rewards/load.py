"""From a `[[rewards]]` table to a reward function. Further kinds of sources are added to `SOURCES`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from strop.config import RewardConfig
from strop.errors import RewardError
from strop.rewards.grade_arguments import item_payload, sample_payload
from strop.rewards.graders.function import load_grader
from strop.rewards.pool import RewardPool
from strop.rewards.reward_function import Outcome, RewardFunction
from strop.types import Rollout, Row


class PythonFunction:
    """`grade(sample, item)` in a Python file of the user's, run in worker processes."""

    def __init__(self, config: RewardConfig) -> None:
        self._config = config
        self._pool = RewardPool(config)

    @property
    def name(self) -> str:
        """As the configuration has it."""
        return self._config.name

    async def start(self) -> None:
        """Raises RewardError, with file and line, if the function cannot be loaded."""
        await self._pool.start()

    async def score(self, row: Row, rollout: Rollout, seed: int) -> Outcome:
        """Score one rollout; a failure is part of the outcome."""
        return await self._pool.call(sample_payload(rollout), item_payload(row), seed)

    async def close(self) -> None:
        """End the processes."""
        await self._pool.close()


SOURCES: dict[str, Callable[[RewardConfig], RewardFunction]] = {".py": PythonFunction, ".json": load_grader}
"""Kinds of reward functions, by the ending of the file that the source names."""


def load_reward(config: RewardConfig) -> RewardFunction:
    """The reward function that a table describes, not started yet. Raises RewardError."""
    grader = config.source.endswith(".json")
    kind = Path(config.source if grader else config.source.rpartition(":")[0]).suffix
    if kind not in SOURCES:
        raise RewardError(
            f"reward {config.name!r}: source {config.source!r} is neither a Python function, file.py:function, "
            "nor a grader, file.json",
            param="rewards.source",
        )
    return SOURCES[kind](config)
