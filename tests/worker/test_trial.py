"""Scoring given answers in bounded time."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from reward_files import reward

from strop.config import RewardConfig
from strop.data.rows import build_row
from strop.errors import RewardError
from strop.types import Rollout, Row
from strop.worker.trial import NOT_REACHED, score_cases


def row(reference: str) -> Row:
    built = build_row(1, {"prompt": "?", "metadata": {"ground_truth": reference}})
    assert isinstance(built, Row)
    return built


def score(configs: list[RewardConfig], answers: list[str], seconds: float = 60) -> list[Rollout]:
    return asyncio.run(score_cases(configs, [(row("b"), answer) for answer in answers], seconds))


def test_answers_are_scored_in_their_order(tmp_path: Path) -> None:
    config = reward(tmp_path, "def grade(sample, item): return sample.output_text == item.reference")
    found = score([config], ["a", "b", "c"])
    assert [rollout.reward and rollout.reward.total for rollout in found] == [0, 1, 0]
    assert [rollout.index for rollout in found] == [0, 1, 2]


def test_what_is_not_done_in_time_is_not_reached(tmp_path: Path) -> None:
    code = "import time\ndef grade(sample, item): time.sleep(60 * (sample.output_text == 'slow')); return 1"
    found = score([reward(tmp_path, code, timeout_s=60)], ["quick", "slow", "slow", "slow"], seconds=3)
    assert found[0].failure is None
    assert [rollout.failure for rollout in found[1:]] == [NOT_REACHED] * 3


def test_a_reward_that_takes_too_long_to_load_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RewardError, match="not be loaded within 1 s"):
        score([reward(tmp_path, "import time; time.sleep(60)\ndef grade(s, i): return 1")], ["a"], seconds=1)


def test_what_rewards_print_is_not_taken_for_the_result(tmp_path: Path) -> None:
    config = reward(tmp_path, "print('at import')\ndef grade(sample, item): print('in a call'); return 1")
    work: dict[str, Any] = {
        "rewards": [config.model_dump(mode="json")],
        "cases": [{"line": 1, "fields": {"prompt": "?"}, "answer": "a"}],
        "seconds": 30,
    }
    folder = tmp_path / "task"
    folder.mkdir()
    (folder / "spec.json").write_text(json.dumps(work))
    subprocess.run([sys.executable, "-m", "strop.worker.trial", str(folder)], timeout=60, check=True)
    (result,) = json.loads((folder / "result.json").read_text())["results"]
    assert (result["reward"], "in a call" in result["logs"]) == (1.0, True)
