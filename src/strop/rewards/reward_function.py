"""What every kind of reward function offers, whether it is a Python file, a judge or a grader."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from strop.types import Failure, Rollout, Row

Value = float | Mapping[str, float]
"""One number, or a number for each named component."""


@dataclass(frozen=True)
class Outcome:
    """What one reward function made of one rollout: a value or a failure, never both."""

    value: Value | None = None
    failure: Failure | None = None
    logs: str = ""
    """What it logged and printed, secrets replaced."""
    seconds: float = 0.0
    """Time that the scoring took, without the wait for a free process."""
    logged: Mapping[str, float] = field(default_factory=dict)
    """More numbers to show by name, with weight 0: the parts that a value was made from."""


class RewardFunction(Protocol):
    """Scores rollouts one by one. Many calls may be under way at the same time."""

    @property
    def name(self) -> str:
        """Name in metrics, files and messages."""

    async def start(self) -> None:
        """Make ready. Raises RewardError if the function cannot be used at all."""

    async def score(self, row: Row, rollout: Rollout, seed: int) -> Outcome:
        """Score one rollout. Whatever goes wrong is in the outcome; nothing is raised."""

    async def close(self) -> None:
        """Free what `start` took. May be called again, and after a failed start."""
