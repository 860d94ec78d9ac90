"""Reward functions to start from: each can be loaded and scores what it says."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from reward_files import reward

from strop.rewards.base import Outcome
from strop.rewards.pool import RewardPool
from strop.rewards.starters.catalogue import STARTERS
from strop.types import Json

TRUTH = {"name": "Ann", "age": 31}


def scores(name: str, reference: Json, answers: Sequence[str], folder: Path) -> list[float]:
    """The total of each answer, in real reward processes."""

    async def run() -> list[Outcome]:
        pool = RewardPool(reward(folder, STARTERS[name].source))
        await pool.start()
        try:
            return [await pool.call({"output_text": answer}, {"reference": reference}, 0) for answer in answers]
        finally:
            await pool.close()

    values = [outcome.value for outcome in asyncio.run(run())]
    assert None not in values
    return [sum(value.values()) if isinstance(value, dict) else float(value or 0) for value in values]  # type: ignore[arg-type]


def test_every_starter_has_a_title_and_says_what_it_scores() -> None:
    assert [name for name, starter in STARTERS.items() if not starter.title or "\n" in starter.description] == []
    assert all(starter.description.endswith(".") for starter in STARTERS.values())


@pytest.mark.parametrize(
    ("name", "reference", "answers", "expected"),
    [
        ("exact_match", "Paris", ["paris ", "It is Paris", ""], [1, 0, 0]),
        ("exact_match", 42, ["42", "43"], [1, 0]),
        ("number_match", "1204", ["So it is 1,204.", "1204.0", "1 or 2", "none"], [1, 1, 0, 0]),
        (
            "json_fields",
            TRUTH,
            ['{"name": "Ann", "age": 31}', '{"name": "Ann"}', "{}", "[]", "[" * 9999],
            [1, 0.6, 0.2, 0, 0],
        ),
        ("pattern", None, ["Answer: 7", "7"], [1, 0]),
        ("length", None, ["word " * 100, "word " * 150, "word " * 300, ""], [1, 0.5, 0, 0]),
        ("custom", None, ["anything"], [0]),
    ],
)
def test_starters_score_what_they_say(
    name: str, reference: Json, answers: list[str], expected: list[float], tmp_path: Path
) -> None:
    assert scores(name, reference, answers, tmp_path) == pytest.approx(expected)
