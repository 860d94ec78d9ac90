"""What an evaluation is to do, as JSON and as people write it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from strop.errors import ConfigError
from strop.evals.spec import EvaluationSpec, Target, parse_target, read_spec

DOCUMENT: dict[str, Any] = {
    "model": {"kind": "checkpoint", "source": "../../runs/a/checkpoints/step-000002", "label": "a step 2"},
    "data": "../../files/file-1",
    "limit": 10,
    "config": {
        "seed": 3,
        "rewards": [{"name": "exact", "source": "../../rewards/rw_1/1/reward.py:grade", "env": ["TOKEN"]}],
        "eval": {"samples": 4, "temperature": 0.8},
        "sampling": {"max_completion_tokens": 64},
    },
}


def read(**changes: Any) -> EvaluationSpec:
    return read_spec({**DOCUMENT, **changes}, Path("/srv/strop/evaluations/eval_1"))


def test_paths_are_relative_to_the_document_so_that_the_data_folder_may_move() -> None:
    spec = read()
    assert spec.target.source == "/srv/strop/runs/a/checkpoints/step-000002"
    assert spec.data == "/srv/strop/files/file-1"
    assert spec.config.rewards[0].source == "/srv/strop/rewards/rw_1/1/reward.py:grade"


def test_names_of_models_are_no_paths() -> None:
    assert read(model={"kind": "base", "source": "Qwen/Qwen3-4B"}).target.source == "Qwen/Qwen3-4B"


def test_settings_are_those_of_a_configuration_with_its_defaults() -> None:
    spec = read()
    assert (spec.config.eval.samples, spec.config.eval.temperature, spec.config.eval.pass_threshold) == (4, 0.8, 1.0)
    assert (spec.config.seed, spec.limit) == (3, 10)
    assert spec.config.sampling.max_prompt_tokens == 512


def test_a_document_made_of_a_spec_is_read_as_that_spec() -> None:
    spec = read()
    assert read_spec(json.loads(json.dumps(spec.as_dict())), Path("/")) == spec


def test_variables_are_those_of_rewards_and_of_the_endpoint() -> None:
    remote = {"kind": "remote", "source": "m", "base_url": "https://h/v1", "api_key_env": "KEY"}
    assert read().variables == ["TOKEN"]
    assert read(model=remote).variables == ["TOKEN", "KEY"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"config": {**DOCUMENT["config"], "eval": {"samples": 2}}}, r"eval\.samples: greedy decoding gives identical"),
        ({"config": {}}, "rewards: Tuple should have at least 1 item"),
        ({"model": {"kind": "magic", "source": "x"}}, r"model\.kind: Input should be"),
        ({"model": {"kind": "deployment", "source": "x"}}, "a deployment needs its name"),
        ({"model": {"kind": "remote", "source": "x"}}, "base_url None is not a base URL"),
    ],
)
def test_a_document_that_cannot_be_evaluated_is_refused_by_key(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read(**changes)


def test_a_document_without_data_is_refused() -> None:
    with pytest.raises(ConfigError, match="data is missing"):
        read_spec({"model": DOCUMENT["model"], "config": DOCUMENT["config"]}, Path("/"))


def test_a_model_at_an_address_is_a_remote_one() -> None:
    target = parse_target("gpt-5-mini@https://api.openai.com/v1", "OPENAI_API_KEY", 4)
    assert target == Target(
        kind="remote",
        source="gpt-5-mini",
        base_url="https://api.openai.com/v1",
        api_key_env="OPENAI_API_KEY",
        concurrency=4,
    )
    assert target.shown == "gpt-5-mini@https://api.openai.com/v1"


@pytest.mark.parametrize("text", ["smollm2-135m", "Qwen/Qwen3-4B", "./runs/demo", "a@b", "org/name@main"])
def test_everything_else_is_a_model_of_this_machine(text: str) -> None:
    assert parse_target(text, "KEY") == Target(kind="base", source=text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("m@https://user:secret@host/v1", "must not contain a password"),
        ("m@https://host/v1?key=1", "leave out"),
        ("m@https://:8000/v1", "is not a base URL"),
        ("m@http://host:99999/v1", "is not a base URL"),
    ],
)
def test_an_address_that_cannot_work_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_target(text)
