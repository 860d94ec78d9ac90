"""Trying reward functions on answers, in a process of their own and in bounded time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from strop.config import RewardConfig
from strop.jobs.short import TrialQueue
from strop.types import Json, Row


@dataclass(frozen=True)
class Case:
    """An answer to score."""

    row: Row
    answer: str


def try_rewards(
    trials: TrialQueue, rewards: Sequence[RewardConfig], cases: Sequence[Case], seconds: float
) -> list[dict[str, Json]]:
    """What the rewards make of each answer, in a process with the secrets that they name: see `strop.worker.trial`.

    Blocks the calling thread. Raises RewardError where a reward cannot be loaded, Unavailable while too many tests run.
    """
    spec = {
        "rewards": [reward.model_dump(mode="json") for reward in rewards],
        "cases": [{"line": case.row.line, "fields": case.row.fields, "answer": case.answer} for case in cases],
        "seconds": seconds,
    }
    results: list[dict[str, Json]] = trials.run(spec)["results"]
    return results
