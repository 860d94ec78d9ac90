"""Sample data sets: sound rows, the same every time, and rewards that tell right from wrong."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from importlib.resources import as_file, files
from pathlib import Path

import pytest

from strop.config import RewardConfig
from strop.data.rows import load_rows, refuse_overlap
from strop.data.samples.sample_sets import SAMPLES, Sample, Split, find_sample
from strop.errors import NotFound
from strop.rewards.presets.index import find_preset
from strop.rewards.scorer import Scorer
from strop.types import Json, Message, Reward, Rollout, Row, StopReason, Turn

EVERY = {"coding": 12}
"""Of which sample only each so many-th row is scored: its reward starts a process for each answer."""


def named(sample: Sample) -> str:
    return sample.name


def write(sample: Sample, split: Split, folder: Path) -> list[Row]:
    file = folder / f"{split}.jsonl"
    file.write_bytes(b"".join(sample.lines(split)))
    return load_rows(file)


def said(reference: Json) -> str:
    """The reference answer as a model would write it."""
    return reference if isinstance(reference, str) else json.dumps(reference)


def rewards(sample: Sample, asked: Sequence[tuple[Row, str]]) -> list[Reward]:
    """What the sample's own reward makes of answers, in real reward processes."""

    async def run(source: Path) -> list[Rollout]:
        config = RewardConfig.model_validate({"name": "sample", "source": f"{source}:grade"})
        async with Scorer.from_config([config]) as scorer:
            return await asyncio.gather(*(scorer.score(row, answered(answer), 0) for row, answer in asked))

    with as_file(files("strop.rewards.presets") / f"{sample.preset}.py") as source:
        scored = asyncio.run(run(source))
    assert [rollout.failure for rollout in scored if rollout.failure] == []
    return [rollout.reward for rollout in scored if rollout.reward]


def answered(text: str) -> Rollout:
    return Rollout(0, (Turn(Message("assistant", text), StopReason.STOP, 1),), StopReason.STOP)


def one(sample: str, answer: str, row: Row) -> float:
    return rewards(SAMPLES[sample], [(row, answer)])[0].total


@pytest.mark.parametrize("sample", SAMPLES.values(), ids=named)
def test_rows_are_sound_and_no_held_out_prompt_is_trained_on(sample: Sample, tmp_path: Path) -> None:
    train, held_out = write(sample, "train", tmp_path), write(sample, "validation", tmp_path)
    assert len(train) >= 100
    assert len(held_out) >= 20
    assert len({row.messages[-1].content for row in train}) == len(train)
    refuse_overlap(train, held_out, "train", "validation")


@pytest.mark.parametrize("sample", SAMPLES.values(), ids=named)
def test_rows_are_the_same_every_time(sample: Sample) -> None:
    assert list(sample.lines("train")) == list(sample.lines("train"))
    assert sample.make() == sample.make()


@pytest.mark.parametrize("sample", SAMPLES.values(), ids=named)
def test_every_reference_answer_has_the_full_score_and_a_wrong_one_less(sample: Sample, tmp_path: Path) -> None:
    rows = [row for split in ("train", "validation") for row in write(sample, split, tmp_path)]
    rows = rows[:: EVERY.get(sample.name, 1)]
    right = rewards(sample, [(row, said(row.reference)) for row in rows])
    assert [reward.total for reward in right] == [pytest.approx(1.0)] * len(rows)
    others = [*rows[1:], rows[0]]
    wrong = [(row, said(other.reference)) for row, other in zip(rows, others, strict=True)]
    differ = [pair for pair in wrong if said(pair[0].reference) != pair[1]]
    assert max(reward.total for reward in rewards(sample, differ)) < 1
    assert [reward.total for reward in rewards(sample, [(row, "I would rather not.") for row in rows[:3]])] == [0.0] * 3


def test_the_reward_of_the_example_is_that_of_the_sample() -> None:
    example = Path(__file__).parents[2] / "examples" / "json-extraction" / "reward.py"
    assert example.read_text(encoding="utf-8") == find_preset(SAMPLES["json-extraction"].preset).source


def test_an_unknown_sample_names_the_known_ones() -> None:
    with pytest.raises(NotFound, match=r"'nope'.*json-extraction, maths"):
        find_sample("nope")


def coding_row(*tests: tuple[Json, Json]) -> Row:
    listed = [{"argument": argument, "expected": expected} for argument, expected in tests]
    return Row("r", 1, (Message("user", "?"),), (), "", {"metadata": {"function": "f", "tests": listed}})


def test_code_is_taken_from_its_block_and_scored_by_its_share_of_passed_tests() -> None:
    row = coding_row((2, 4), (3, 9))
    answer = "Here you are:\n```python\ndef f(n):\n    print(n)\n    return n + n\n```\nIt doubles."
    assert one("coding", answer, row) == pytest.approx(0.2 + 0.4)


@pytest.mark.parametrize(
    "body",
    [
        "import os\n    return 1",
        "return ().__class__.__base__.__subclasses__()",
        "return open('/etc/passwd').read()",
        "return '{0.real}'.format(n)",
        "while True: pass",
        "return f(n)",
        "return [0] * 10**12",
        "return undefined",
    ],
)
def test_code_that_reaches_out_hangs_or_breaks_scores_no_test(body: str) -> None:
    assert one("coding", f"def f(n):\n    {body}", coding_row((2, 1))) <= 0.2


@pytest.mark.parametrize("answer", ["[" * 100_000, "```python\n" + "(" * 5_000, "9" * 5_000, "", "def g(n): return 1"])
def test_odd_answers_score_nothing_and_break_nothing(answer: str, tmp_path: Path) -> None:
    for name in SAMPLES:
        row = coding_row((2, 4)) if name == "coding" else write(SAMPLES[name], "train", tmp_path)[0]
        assert one(name, answer, row) <= 0.1
