from __future__ import annotations

from pathlib import Path

import pytest

from served import services
from strop.rewards.presets.index import presets
from strop.services import rewards
from strop.services.field_errors import faults
from strop.services.reward_names import reward_name
from strop.services.rewards import NewReward
from strop.web.presets import content
from strop.web.reward_test import split_answers


def test_everything_to_start_from_is_a_reward(tmp_path: Path) -> None:
    with services(tmp_path / "data") as server:
        for preset in presets().values():
            body = NewReward(name=preset.title, **content(preset.kind, preset.source), env=[])
            assert rewards.create.blocking(server, body).kind == preset.kind


def test_there_is_one_for_each_sample_and_each_form() -> None:
    titles = [preset.title for preset in presets().values()]
    for title in ("Exact match", "Number match", "JSON fields", "Regular expression", "Length", "Custom"):
        assert title in titles
    assert "Sample: JSON extraction" in titles
    assert all(preset.description for preset in presets().values())


@pytest.mark.parametrize(
    "title, name",
    [("Exact match", "exact_match"), ("Sample: Search QA", "search_qa"), ("42!", "reward"), ("", "reward")],
)
def test_a_title_becomes_a_name(title: str, name: str) -> None:
    assert reward_name(title) == name


def test_a_grader_that_is_no_json_is_named() -> None:
    with pytest.raises(ValueError) as caught:
        content("grader", "{")
    assert faults(caught.value)[""].startswith("not valid JSON: ")


@pytest.mark.parametrize(
    "text, answers",
    [("one", ["one"]), ("a\nb\n---\nc", ["a\nb", "c"]), ("---\n", ["", ""]), ("a --- b", ["a --- b"]), ("", [""])],
)
def test_pasted_answers_are_parted(text: str, answers: list[str]) -> None:
    assert split_answers(text) == answers
