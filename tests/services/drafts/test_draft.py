from __future__ import annotations

import json
from typing import Any

import pytest

from strop.jobs.job import Job
from strop.services.drafts.draft import JobDraft, RewardPart, draft_of_job, request_of
from strop.services.job_creation import create_job
from strop.services.job_request import JobRequest

GRADER = {
    "type": "string_check",
    "name": "exact",
    "operation": "eq",
    "input": "{{sample.output_text}}",
    "reference": "4",
}
OWN = {
    "strop": {
        "name": "one",
        "rewards": [
            {"name": "r", "python": "def grade(s, i): return 1", "weight": 0},
            {"name": "s", "python": "def score(s, i): return 1", "function": "score", "timeout_s": 3, "workers": 1},
        ],
        "train": {"epochs": 2, "loss": "grpo"},
        "sampling": {"stop": ["\n"], "template": {"enable_thinking": False}},
        "lora": {"r": 4, "targets": ["q_proj"]},
        "device": "cpu",
    }
}
OPENAI = {
    "method": {
        "type": "reinforcement",
        "reinforcement": {
            "grader": GRADER,
            "hyperparameters": {"n_epochs": 3, "compute_multiplier": 2, "learning_rate_multiplier": 0.5},
        },
    },
    "suffix": "mine",
    "metadata": {"team": "a"},
    "seed": 9,
}


def file_of(dataset: str) -> str:
    return f"file-{dataset}"


def request(draft: JobDraft) -> dict[str, Any]:
    return request_of(draft, file_of, "usual")


def job(place: Any, **body: Any) -> Job:
    train = place.services.files.list()[1].id
    return create_job(
        JobRequest.model_validate({"model": "smollm2-135m", "training_file": train, **body}),
        place.services,
        None,
        False,
    )


def again(place: Any, made: Job, **others: Any) -> Job:
    """The job that the draft of a job makes."""
    draft = draft_of_job(made, lambda file: file, **others)
    body = request_of(JobDraft.model_validate_json(draft.model_dump_json()), lambda dataset: dataset, "usual")
    return create_job(JobRequest.model_validate(body), place.services, None, repeated=False)


def test_a_request_says_only_what_is_not_at_its_default() -> None:
    draft = JobDraft(model="m", train="a", seed=3, rewards=(RewardPart(name="r", source="code"),))
    assert request(draft) == {
        "model": "m",
        "training_file": "file-a",
        "seed": 3,
        "strop": {"name": "usual", "rewards": [{"name": "r", "python": "code"}]},
    }


def test_values_go_to_their_tables() -> None:
    draft = JobDraft(model="m", train="a", name="mine", values={"train.epochs": 2, "lora.r": 4, "device": "cpu"})
    options = request(draft)["strop"]
    assert options == {"name": "mine", "rewards": [], "train": {"epochs": 2}, "lora": {"r": 4}, "device": "cpu"}


def test_what_is_about_validation_is_left_out_without_any() -> None:
    values = {"train.eval_every": 5, "eval.samples": 4, "train.epochs": 2}
    assert request(JobDraft(train="a", values=values))["strop"]["train"] == {"epochs": 2}
    with_rows = request(JobDraft(train="a", validation="b", values=values))
    assert with_rows["validation_file"] == "file-b"
    assert with_rows["strop"]["train"] == {"epochs": 2, "eval_every": 5}
    assert with_rows["strop"]["eval"] == {"samples": 4}


@pytest.mark.parametrize("value", [None, "", 4])
def test_an_empty_value_and_the_default_are_not_kept(value: Any) -> None:
    draft = JobDraft(values={"train.batch_size": 8, "train.epochs": 2}).with_value("train.batch_size", value, 4)
    assert draft.values == {"train.epochs": 2}
    assert draft.with_value("train.batch_size", 16, 4).values == {"train.batch_size": 16, "train.epochs": 2}


def test_rewards_are_changed_and_taken_out_by_their_place() -> None:
    first, second, other = (RewardPart(name=name) for name in ("first", "second", "other"))
    draft = JobDraft(rewards=(first, second))
    assert draft.with_reward(0, other).rewards == (other, second)
    assert draft.with_reward(1, None).rewards == (first,)


@pytest.mark.parametrize(
    "part, option",
    [
        (RewardPart(name="a", source="x", weight=0.5), {"name": "a", "python": "x", "weight": 0.5}),
        (RewardPart(name="a", source="x", weight=None), {"name": "a", "python": "x", "weight": None}),
        (RewardPart(name="a", kind="stored", reward="rw_1", version=2), {"name": "a", "reward": "rw_1", "version": 2}),
        (RewardPart(name="a", kind="grader", source=json.dumps(GRADER)), {"name": "a", "grader": GRADER}),
        (
            RewardPart(name="a", source="x", function="score", env=("KEY",), limits={"timeout_s": 3}),
            {"name": "a", "python": "x", "function": "score", "env": ["KEY"], "timeout_s": 3},
        ),
    ],
)
def test_a_reward_as_requests_name_it(part: RewardPart, option: dict[str, Any]) -> None:
    assert part.option == option


def test_a_grader_that_is_no_json_cannot_be_named() -> None:
    with pytest.raises(ValueError, match="line 1"):
        _ = RewardPart(name="a", kind="grader", source="{").option


def test_a_draft_is_the_same_after_the_database() -> None:
    draft = JobDraft(model="m", rewards=(RewardPart(name="r", env=("KEY",)),), values={"sampling.stop": ["\n"]})
    assert JobDraft.model_validate(json.loads(json.dumps(draft.model_dump(mode="json")))) == draft


def test_what_another_version_put_into_a_draft_is_left_out() -> None:
    assert JobDraft.model_validate({"model": "m", "colour": "red", "rewards": [{"name": "r", "size": 3}]}).model == "m"


def test_a_test_is_of_a_model_its_rows_its_rewards_and_how_answers_are_drawn() -> None:
    draft = JobDraft(model="m", train="a", rewards=(RewardPart(name="r"),))
    same = draft.with_value("train.epochs", 3, 1).model_copy(update={"name": "other", "validation": "b"})
    assert same.tested == draft.tested
    for changed in (
        draft.model_copy(update={"model": "n"}),
        draft.model_copy(update={"train": "b"}),
        draft.with_value("sampling.temperature", 0.5, 1.0),
        draft.with_reward(0, RewardPart(name="r", source="new")),
    ):
        assert changed.tested != draft.tested


@pytest.mark.parametrize("body", [OWN, OPENAI], ids=["own", "openai"])
def test_a_cloned_job_is_the_same_job(place: Any, body: dict[str, Any]) -> None:
    made = job(place, **body)
    clone = again(place, made)
    assert clone.id != made.id
    assert clone.config == made.config
    assert (clone.suffix, clone.metadata, clone.training_file) == (made.suffix, made.metadata, made.training_file)


def test_a_clone_validates_as_often_as_the_job_did(place: Any) -> None:
    validation = place.services.files.list()[0].id
    grader = {"method": {"type": "reinforcement", "reinforcement": {"grader": GRADER}}}
    for table in ({}, {"train": {"eval_every": 0}}, {"train": {"eval_every": 7}, "eval": {"samples": 4}}):
        made = job(place, validation_file=validation, strop=table, **grader)
        assert again(place, made).config == made.config


def test_a_fork_starts_from_the_checkpoint(place: Any) -> None:
    made = job(place, method={"type": "reinforcement", "reinforcement": {"grader": GRADER}})
    draft = draft_of_job(made, lambda file: file, "ftckpt_1")
    assert draft.model == "ftckpt_1"
    assert draft.rewards[0].name == "exact"


def test_a_clone_whose_rows_are_gone_asks_for_others(place: Any) -> None:
    made = job(place, method={"type": "reinforcement", "reinforcement": {"grader": GRADER}})
    assert draft_of_job(made, lambda file: "").train == ""
