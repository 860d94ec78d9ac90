"""Every example loads, its rows are sound, and its reward tells right from wrong."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import random
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from strop.config import read_config
from strop.data.rows import load_rows, refuse_overlap
from strop.policy.catalogue import find_entry
from strop.rewards.scorer import Scorer
from strop.types import Message, Reward, Rollout, Row, StopReason, Turn

EXAMPLES = Path(__file__).parents[1] / "examples"
FOLDERS = sorted(config.parent for config in EXAMPLES.glob("*/config.toml"))
WITH_ROWS = [folder for folder in FOLDERS if (folder / "train.jsonl").exists()]


def named(folder: Path) -> str:
    return folder.name


def load_module(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{file.stem}", file)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def score(folder: Path, row: Row, answer: str, *overrides: str) -> Reward:
    """What the example's own configuration makes of an answer, in real reward processes."""

    async def run() -> Rollout:
        async with Scorer.from_config(read_config(folder / "config.toml", overrides).rewards) as scorer:
            rollout = Rollout(0, (Turn(Message("assistant", answer), StopReason.STOP, 1),), StopReason.STOP)
            return await scorer.score(row, rollout, seed=0)

    scored = asyncio.run(run())
    assert scored.reward is not None, scored.failure
    return scored.reward


@pytest.mark.parametrize("folder", FOLDERS, ids=named)
def test_the_configuration_loads_and_names_a_known_model(folder: Path) -> None:
    config = read_config(folder / "config.toml")
    assert find_entry(config.model) is not None
    assert (folder / "README.md").exists()


@pytest.mark.parametrize("folder", WITH_ROWS, ids=named)
def test_rows_are_sound_and_held_out_rows_are_new(folder: Path) -> None:
    train, heldout = load_rows(folder / "train.jsonl"), load_rows(folder / "heldout.jsonl")
    assert len(train) >= 200
    assert len({row.id.partition("-")[0] for row in train}) == len(train)
    refuse_overlap(train, heldout, "train", "heldout")


@pytest.mark.parametrize("folder", WITH_ROWS, ids=named)
def test_rows_are_what_the_script_writes(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "make_rows.py"
    copy.write_bytes((folder / "make_rows.py").read_bytes())
    load_module(copy).main()
    for name in ("train.jsonl", "heldout.jsonl"):
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()


RIGHT_ANSWERS: dict[str, Callable[[Any], str]] = {
    "json-extraction": json.dumps,
    "largest-number": str,
}


@pytest.mark.parametrize("folder", WITH_ROWS, ids=named)
def test_the_right_answer_scores_one_and_a_wrong_one_zero(folder: Path) -> None:
    row = random.Random(0).choice(load_rows(folder / "train.jsonl"))
    assert score(folder, row, RIGHT_ANSWERS[folder.name](row.reference)).total == pytest.approx(1.0)
    assert score(folder, row, "I would rather not say.").total == 0.0


def test_a_part_of_the_json_gives_a_part_of_the_reward() -> None:
    folder = EXAMPLES / "json-extraction"
    row = load_rows(folder / "train.jsonl")[0]
    reward = score(folder, row, json.dumps({**row.reference, "age": -1}))
    assert reward.total == pytest.approx(0.6)
    assert reward.components == {"format": 0.2, "name": 0.4, "age": 0.0}


@pytest.mark.parametrize(
    "change",
    [{}, {"age": -1}, {"name": "Nobody"}, {"more": 1}, {"age": None}, {"name": ["a"]}],
    ids=["right", "age", "name", "more", "null", "list"],
)
def test_the_grader_file_gives_the_same_reward_as_the_function(change: dict[str, Any]) -> None:
    folder = EXAMPLES / "json-extraction"
    row = load_rows(folder / "train.jsonl")[0]
    answer = json.dumps({**row.reference, **change})
    reward = score(folder, row, answer, "rewards.0.source=grader.json")
    assert reward.total == pytest.approx(score(folder, row, answer).total)
    assert set(reward.components) == {"extraction", "extraction/format", "extraction/name", "extraction/age"}


@pytest.mark.parametrize("answer", ["no JSON", "[]", "7", '{"name": "x"', ""])
def test_the_grader_file_scores_what_is_no_object_with_zero(answer: str) -> None:
    folder = EXAMPLES / "json-extraction"
    row = load_rows(folder / "train.jsonl")[0]
    assert score(folder, row, answer, "rewards.0.source=grader.json").total == 0.0


def test_the_gpu_example_weighs_being_right_above_being_brief() -> None:
    row = Row("r", 1, (Message("user", "How many eggs?"),), (), "204", {"metadata": {"ground_truth": "204"}})
    long_right = score(EXAMPLES / "qwen3-4b-gpu", row, "12 × 17 is 204. " + "So it is. " * 150 + "204")
    brief_wrong = score(EXAMPLES / "qwen3-4b-gpu", row, "205")
    assert long_right.total > brief_wrong.total
