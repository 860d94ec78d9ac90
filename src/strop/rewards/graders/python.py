"""`python`: `grade(sample, item)` as text, run in the processes of a reward pool."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from strop.rewards.graders.base import Grade, Settings, Values
from strop.rewards.graders.shapes import Python
from strop.rewards.pool import RewardPool
from strop.rewards.process import Code
from strop.types import Failure


class PythonPart:
    """A function of the grader's own. It sees none of the reward's variables."""

    def __init__(self, grader: Python, settings: Settings) -> None:
        # A grader comes from elsewhere more often than a file does, and OpenAI's see none either.
        config = settings.config.model_copy(update={"env": ()})
        self._pool = RewardPool(config, code=Code("grader.py", "grade", grader.source))

    async def start(self) -> None:
        """Raises RewardError, with the line, if the source cannot be loaded."""
        await self._pool.start()

    async def grade(self, sample: Values, item: Values, seed: int) -> Grade:
        """Grade one sample."""
        outcome = await self._pool.call(sample, item, seed)
        grade = Grade(failure=outcome.failure, logs=outcome.logs, seconds=outcome.seconds)
        if isinstance(outcome.value, Mapping):
            found = f"returned components {', '.join(outcome.value)}; a grader returns one number"
            return replace(grade, failure=Failure("type", found))
        return replace(grade, value=outcome.value)

    async def close(self) -> None:
        """End the processes."""
        await self._pool.close()
