from __future__ import annotations

import json
from typing import Any

import pytest

from strop.services import rewards
from strop.services.drafts.check import check
from strop.services.drafts.draft import JobDraft, RewardPart, values_of
from strop.services.rewards import NewReward
from strop.web.wizard.frame import step_of

GOOD = RewardPart(name="length", source="def grade(sample, item): return 1")


def faults(place: Any, **values: Any) -> dict[str, str]:
    return dict(check.blocking(place.services, place.draft(**values)).faults)


def test_a_draft_that_nothing_is_wrong_with_is_a_job(place: Any) -> None:
    found = check.blocking(place.services, place.draft(values={"train.epochs": 2}))
    assert found.faults == {}
    assert found.request is not None and found.order is not None
    assert found.order.config.train.epochs == 2
    assert found.order.config.name == "maths"  # after the data set
    assert found.order.config.seed == 5


def test_an_empty_draft_says_what_is_missing_and_where(place: Any) -> None:
    found = check.blocking(place.services, JobDraft())
    assert {name: step_of(name) for name in found.faults} == {
        "model": "model",
        "training_file": "dataset",
        "strop.rewards": "reward",
    }
    assert found.order is None


@pytest.mark.parametrize(
    "values, field, step, words",
    [
        ({"model": "no-such-model"}, "model", "model", "'no-such-model' is not known here"),
        ({"train": "ds_gone"}, "training_file", "dataset", "no data set 'ds_gone'"),
        ({"validation": "ds_gone"}, "validation_file", "dataset", "no data set 'ds_gone'"),
        ({"values": {"train.epochs": 0}}, "strop.train.epochs", "tools", "greater than or equal to 1, found 0"),
        ({"values": {"sampling.temperature": 3}}, "strop.sampling.temperature", "tools", "less than or equal to 2"),
        ({"values": {"sampling.template": "{"}}, "strop.sampling.template", "tools", "table"),
        ({"values": {"train.clip_low": 2}}, "strop.train.clip_low", "tools", "a ratio below 0"),
        ({"name": "no name"}, "strop.name", "review", "should match pattern"),
        ({"rewards": (RewardPart(name="1"),)}, "strop.rewards[0].name", "reward", "should match pattern"),
        (
            {"rewards": (GOOD, RewardPart(name="b", source="def grade(", weight=2))},
            "strop.rewards[1].python",
            "reward",
            "this is not valid Python code",
        ),
        ({"rewards": (RewardPart(name="b", source="x = 1"),)}, "strop.rewards[0].function", "reward", "no function"),
        ({"rewards": (GOOD, GOOD)}, "strop.rewards[1].name", "reward", "another reward has this name"),
        ({"rewards": (GOOD.model_copy(update={"weight": None}),)}, "strop.rewards[0].weight", "reward", "number"),
        ({"rewards": (GOOD.model_copy(update={"weight": 0}),)}, "strop.rewards", "reward", "every weight is 0"),
        (
            {"rewards": (RewardPart(name="g", kind="grader", source="{"),)},
            "strop.rewards[0].source",
            "reward",
            "not valid JSON",
        ),
        (
            {"rewards": (RewardPart(name="g", kind="grader", source='{"type": "string_check"}'),)},
            "strop.rewards[0].grader.input",
            "reward",
            "",
        ),
        (
            {"rewards": (RewardPart(name="s", kind="stored", reward="rw_gone"),)},
            "strop.rewards[0].source",
            "reward",
            "no reward 'rw_gone'",
        ),
    ],
)
def test_a_fault_stands_at_its_field(place: Any, values: dict[str, Any], field: str, step: str, words: str) -> None:
    found = faults(place, **values)
    assert list(found) == [field]
    assert step_of(field) == step
    assert words in found[field]
    assert not found[field].startswith(field)


def test_rows_to_train_on_are_not_held_out(place: Any) -> None:
    assert list(faults(place, validation=place.train)) == ["validation_file"]


def test_all_faults_are_found_at_once(place: Any) -> None:
    found = faults(place, model="", values={"train.epochs": 0, "lora.r": 0}, rewards=())
    assert set(found) == {"model", "strop.train.epochs", "strop.lora.r", "strop.rewards"}


def test_a_reward_of_the_library_is_one_by_its_id(place: Any) -> None:
    new = NewReward(name="stored", python="def grade(sample, item): return 1", env=[])
    stored = rewards.create.blocking(place.services, new)
    part = RewardPart(name="mine", kind="stored", reward=stored.id, version=1)
    found = check.blocking(place.services, place.draft(rewards=(part,)))
    assert found.order is not None
    assert found.order.config.rewards[0].source == f"rewards/{stored.id}/1/reward.py:grade"
    missing = part.model_copy(update={"version": 9})
    assert list(faults(place, rewards=(missing,))) == ["strop.rewards[0].source"]


def test_a_cloned_job_has_no_faults(place: Any) -> None:
    values = {"eval.samples": 4, "train.eval_every": 2, "train.max_steps": 4, "sampling.max_prompt_tokens": 64}
    found = check.blocking(place.services, place.draft(values=values))
    assert found.order is not None, found.faults
    assert found.order.config.eval.temperature == 1.0  # several answers that are all the same would tell nothing
    again = check.blocking(place.services, place.draft(values=values_of(found.order.config)))
    assert again.order is not None, again.faults
    assert again.order.config == found.order.config


def test_a_request_can_be_sent(place: Any) -> None:
    found = check.blocking(
        place.services, place.draft(values={"sampling.stop": ["a", "b"], "train.learning_rate": 1e-5})
    )
    assert json.loads(json.dumps(found.request)) == found.request
