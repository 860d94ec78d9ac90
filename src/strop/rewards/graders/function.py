"""A grader as a reward function, and a grader's JSON file as the source of one."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path

from strop.config import RewardConfig
from strop.errors import InvalidRequest, RewardError
from strop.rewards.grade_arguments import item_payload, sample_payload
from strop.rewards.graders.grade import Grade, Part, Settings, Values
from strop.rewards.graders.grader import Grader
from strop.rewards.graders.parse import parse_grader
from strop.rewards.redact import Redactor
from strop.rewards.reward_function import Outcome
from strop.rewards.sandbox import named_variables
from strop.types import Failure, Json, Rollout, Row


class GraderFunction:
    """Scores rollouts by a grader.

    Its model parts read the variables in `config.env` and no others; `variables` gives their
    values where they are not in the environment.
    """

    def __init__(
        self,
        config: RewardConfig,
        grader: Grader,
        variables: Mapping[str, str] | None = None,
        allow_private: bool = True,
    ) -> None:
        self._config = config
        self._grader = grader
        self._variables = variables
        self._allow_private = allow_private
        self._redactor = Redactor({})
        self._part: Part | None = None

    @property
    def name(self) -> str:
        """As the configuration has it."""
        return self._config.name

    async def start(self) -> None:
        """Raises RewardError if a package, a variable or a corpus is missing, or a source cannot be loaded."""
        variables = self._variables
        if variables is None:
            variables = named_variables(self._config.env, self._config.name)
        self._redactor = Redactor(variables)
        settings = Settings(self._config, variables, self._allow_private)
        # In a thread: it may import large libraries, and a server has other things to do.
        self._part = await asyncio.to_thread(self._grader.part, settings)
        try:
            await self._part.start()
        except BaseException:
            await self.close()
            raise

    async def score(self, row: Row, rollout: Rollout, seed: int) -> Outcome:
        """Score one rollout; a failure is part of the outcome. The parts of a multi grader are logged."""
        grade = await self.grade(sample_payload(rollout), row_item(row), seed)
        logged = {name: part.value for name, part in grade.parts.items() if part.value is not None}
        return Outcome(grade.value, grade.failure, grade.logs, grade.seconds, logged)

    async def grade(self, sample: Values, item: Values, seed: int) -> Grade:
        """Grade one sample, given as `sample_payload` makes them. Nothing is raised."""
        if self._part is None:
            return Grade(failure=Failure("start", "the grader is not started"))
        try:
            grade = await self._part.grade(sample, item, seed)
        except Exception as error:  # A library that stumbles over a strange text is no reason to stop a run.
            grade = Grade(failure=Failure("other", f"{type(error).__name__}: {error}"[:500]))
        return self._redacted(grade)

    async def close(self) -> None:
        """End processes and connections."""
        if self._part is not None:
            await self._part.close()

    def _redacted(self, grade: Grade) -> Grade:
        return dataclasses.replace(
            grade,
            failure=grade.failure and self._redactor.failure(grade.failure),
            logs=self._redactor.text(grade.logs),
            parts={name: self._redacted(part) for name, part in grade.parts.items()},
        )


def load_grader(config: RewardConfig) -> GraderFunction:
    """The grader in the JSON file that a source names. Raises RewardError with file and place."""
    return GraderFunction(config, read_grader(Path(config.source), config.name))


def read_grader(path: Path, reward: str) -> Grader:
    """The grader in a file. Raises RewardError with the place in it."""
    try:
        return parse_grader(json.loads(path.read_bytes()))
    except FileNotFoundError:
        why = "file not found"
    except OSError as error:
        why = error.strerror or str(error)
    except (ValueError, RecursionError) as error:
        why = f"not JSON: {error}"
    except InvalidRequest as error:
        why = error.message
    raise RewardError(f"reward {reward!r}: {path}: {why}", param="rewards.source")


def row_item(row: Row) -> dict[str, Json]:
    """A row as a grader sees it: as Python functions do, but a reference that there is none of is absent."""
    item = item_payload(row)
    if item["reference"] is None and "reference" not in row.fields:
        del item["reference"]
    return item
