"""`python`: `grade(sample, item)` as text, run in the processes of a reward pool."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import AfterValidator

from strop.rewards.graders.fields import Text, fault
from strop.rewards.graders.grade import Grade, Part, Settings, Values
from strop.rewards.graders.grader import Grader
from strop.rewards.pool import RewardPool
from strop.rewards.process import Code
from strop.types import Failure, Json

MAX_SOURCE_BYTES = 256_000


def _check_size(source: str) -> str:
    size = len(source.encode(errors="surrogatepass"))
    if size >= MAX_SOURCE_BYTES:
        raise fault(f"{size:,} bytes; a source has less than {MAX_SOURCE_BYTES:,}")
    return source


class Python(Grader):
    """`grade(sample, item)` as text."""

    type: Literal["python"]
    source: Annotated[Text, AfterValidator(_check_size)]
    image_tag: Json = None
    """Ignored: strop has no images, what is installed is there."""

    def part(self, settings: Settings) -> Part:
        """Run the source in processes."""
        return _PythonPart(self.source, settings)


class _PythonPart:
    """A function of the grader's own. It sees none of the reward's variables."""

    def __init__(self, source: str, settings: Settings) -> None:
        # A grader comes from elsewhere more often than a file does, and OpenAI's see none either.
        config = settings.config.model_copy(update={"env": ()})
        self._pool = RewardPool(config, code=Code("grader.py", "grade", source))

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
