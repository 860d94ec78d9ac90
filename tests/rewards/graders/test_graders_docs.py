"""The examples of docs/graders.md give what the page says, and the page names all there is."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from grading import grade
from judge_server import scores, serving

from strop.config import RewardConfig
from strop.rewards.grade_arguments import SAMPLE_NAMES
from strop.rewards.graders.formula import FUNCTIONS
from strop.rewards.graders.parse import parse_grader
from strop.rewards.graders.result import FLAGS
from strop.rewards.graders.similarity import METRICS
from strop.rewards.graders.string_check import CHECKS

PAGE = (Path(__file__).parents[3] / "docs" / "graders.md").read_text(encoding="utf-8")
GRADERS: list[Any] = [json.loads(text) for text in re.findall(r"^```json\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)]


def test_the_first_example_scores_as_the_page_says() -> None:
    graded = grade(GRADERS[0], '{"city": "paris"}', {"city": "Paris"})
    assert {name: part.value for name, part in graded.parts.items()} == pytest.approx(
        {"exact": 1.0, "brief": 0.85}, abs=0.005
    )
    assert graded.value == pytest.approx(0.985, abs=0.0005)


def test_the_table_of_the_first_example_is_valid() -> None:
    (block,) = re.findall(r"^```toml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert RewardConfig.model_validate(tomllib.loads(block)["rewards"][0]).timeout_s == 120.0


def test_the_judge_of_the_page_is_valid() -> None:
    with serving(scores(7)) as server:
        graded = grade(GRADERS[1] | {"base_url": server.url}, "Gladly!", {"prompt": "Help?", "reference": "Yes"})
    assert graded.value == 7.0
    assert parse_grader(GRADERS[1]).name == "score_model"


@pytest.mark.parametrize("name", [*CHECKS, *FUNCTIONS, *(f"sample.{name}" for name in SAMPLE_NAMES)])
def test_every_name_that_one_may_use_is_on_the_page(name: str) -> None:
    assert f"`{name}`" in PAGE


@pytest.mark.parametrize("metric", [metric for metric in METRICS if metric not in ("rouge_2", "rouge_3", "rouge_4")])
def test_every_metric_is_on_the_page(metric: str) -> None:
    assert f"`{metric}`" in PAGE


@pytest.mark.parametrize("flag", [flag for flag in FLAGS if flag != "truncated_observation_error"])
def test_every_flag_that_is_raised_is_on_the_page(flag: str) -> None:
    assert f"`{flag}`" in PAGE
