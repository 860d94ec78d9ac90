"""What a grader makes of one sample, and what it needs for that."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from strop.config import RewardConfig
from strop.endpoints.replies import Usage
from strop.errors import RewardError
from strop.rewards.graders.template import Absent
from strop.types import Failure, Json

Values = Mapping[str, Json]


@dataclass(frozen=True)
class Grade:
    """What one grader made of one sample: a value or a failure, never both."""

    value: float | None = None
    failure: Failure | None = None
    fault: str | None = None
    """What the model got wrong so that the lowest value was given, as the name of OpenAI's flag."""
    logs: str = ""
    seconds: float = 0.0
    """Time that it took, without the wait for a free process or connection."""
    usage: Usage = field(default_factory=Usage)
    answered_by: str | None = None
    """The judge, as its server calls it."""
    parts: Mapping[str, Grade] = field(default_factory=dict)
    """Grades of the parts of a multi grader."""


class Part(Protocol):
    """Runs one grader. Many calls may be under way at the same time."""

    async def start(self) -> None:
        """Make ready. Raises RewardError if the grader cannot be used at all."""

    async def grade(self, sample: Values, item: Values, seed: int) -> Grade:
        """Grade one sample."""

    async def close(self) -> None:
        """Free what `start` took. May be called again, and after a failed start."""


@dataclass(frozen=True)
class Settings:
    """What a grader may use, beside what it says itself."""

    config: RewardConfig
    """Name, time limit of one part's call, processes and memory of Python parts."""
    variables: Mapping[str, str]
    """Variables that model parts may read; nothing else of the environment."""
    allow_private: bool = True
    """Whether judges may be on this machine and in private networks."""

    def of_part(self, name: str) -> Settings:
        """Settings of a part of a multi grader."""
        config = self.config.model_copy(update={"name": f"{self.config.name}.{name}"})
        return dataclasses.replace(self, config=config)

    def load(self, module: str, needed_by: str) -> Any:
        """Import a module that needs packages which a base installation lacks. Raises RewardError."""
        try:
            return importlib.import_module(module)
        except ModuleNotFoundError as error:
            raise self.refusal(
                f"{needed_by} needs the package {error.name}, which is not installed; "
                "run `pip install 'strop[graders]'`"
            ) from None

    def refusal(self, why: str, param: str = "rewards.source") -> RewardError:
        """Make the error that says why a reward cannot be used."""
        return RewardError(f"reward {self.config.name!r}: {why}", param=param)


def absent(error: Absent, lowest: float) -> Grade:
    """The grade of a sample that lacks a variable.

    Where the model decided that it is not there (it wrote no JSON, it left a key out), that is
    a bad answer and has the lowest value. Everything else is a fault of rows or grader.
    """
    if not error.by_model:
        return Grade(failure=Failure("variable", str(error)))
    fault = "sample_parse_error" if error.unparsed else "invalid_variable_error"
    return Grade(lowest, fault=fault, logs=f"lowest value: {error}\n")
