"""Graders tried through OpenAI's client: rewards, error flags, faults, judges."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai import OpenAI
from openai.types.fine_tuning.alpha import GraderRunResponse

from chat_endpoint import Asked, ChatEndpoint, Reply
from served import connected, services

CHECK = {
    "type": "string_check",
    "name": "exact",
    "input": "{{sample.output_text}}",
    "reference": "{{item.answer}}",
    "operation": "eq",
}
MULTI = {
    "type": "multi",
    "graders": {
        "exact": CHECK,
        "near": {
            "type": "text_similarity",
            "name": "near",
            "input": "{{sample.output_text}}",
            "reference": "{{item.answer}}",
            "evaluation_metric": "fuzzy_match",
        },
    },
    "calculate_output": "0.5 * exact + 0.5 * near",
}


def python(body: str) -> dict[str, Any]:
    return {"type": "python", "name": "code", "source": f"def grade(sample, item):\n    {body}\n"}


def judge(**fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "Rate {{sample.output_text}}"}]
    return {"type": "score_model", "name": "judge", "model": "gpt-x", "input": messages, "range": [0, 10], **fields}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenAI]:
    with services(tmp_path_factory.mktemp("data")) as given:
        given.secrets.set("JUDGE_KEY", "the-key-of-the-judge")
        with connected(given) as client:
            yield client


def run(client: OpenAI, grader: Any, sample: str, item: Any = None) -> GraderRunResponse:
    return client.fine_tuning.alpha.graders.run(grader=grader, model_sample=sample, item=item or {"answer": "four"})


def raised(result: GraderRunResponse) -> set[str]:
    """Names of the flags that are up."""
    flags = result.metadata.errors.to_dict(mode="python")
    return {name for name, value in flags.items() if value is True}


@pytest.mark.parametrize(("sample", "reward"), [("four", 1.0), ("five", 0.0)])
def test_a_reward_comes_with_every_field_that_the_client_declares(client: OpenAI, sample: str, reward: float) -> None:
    result = run(client, CHECK, sample)
    GraderRunResponse.model_validate(result.to_dict())
    assert (result.reward, result.sub_rewards, result.api_model_grader_token_usage_per_model) == (reward, {}, {})
    assert (result.metadata.name, result.metadata.type, result.metadata.token_usage) == ("exact", "string_check", None)
    assert len(result.metadata.errors.to_dict(mode="python")) == 14
    assert raised(result) == set()


def test_the_parts_of_a_multi_grader_are_told(client: OpenAI) -> None:
    result = run(client, MULTI, "four")
    assert (result.reward, result.sub_rewards) == (1.0, {"exact": 1.0, "near": 1.0})
    assert result.metadata.scores == {"exact": 1.0, "near": 1.0}


def test_python_runs_outside_of_the_server_and_what_it_prints_is_shown(client: OpenAI) -> None:
    result = run(client, python("import os; print('hi'); return os.getpid()"), "x")
    assert result.reward > 1
    assert result.reward != os.getpid()  # the server is a thread of this process
    assert result.metadata.to_dict()["logs"] == "hi\n"


def test_output_json_is_there_where_the_sample_is_json(client: OpenAI) -> None:
    assert run(client, python("return sample['output_json']['a']"), '{"a": 0.25}').reward == 0.25


@pytest.mark.parametrize(
    ("grader", "sample", "flag"),
    [
        (python("return 1 / 0"), "x", "python_grader_runtime_error"),
        (python("return None"), "x", "python_grader_runtime_error"),
        ({**CHECK, "reference": "{{item.nothing}}"}, "x", "invalid_variable_error"),
    ],
)
def test_a_grader_that_fails_gives_a_flag_and_no_reward(client: OpenAI, grader: Any, sample: str, flag: str) -> None:
    result = run(client, grader, sample)
    assert result.reward is None
    assert raised(result) == {flag}
    assert result.metadata.to_dict()["failure"]


def test_a_valid_grader_is_given_back_as_it_was(client: OpenAI) -> None:
    answer = client.fine_tuning.alpha.graders.validate(grader=MULTI)  # type: ignore[arg-type]
    assert answer.grader is not None
    assert answer.grader.to_dict() == MULTI


@pytest.mark.parametrize("call", ["validate", "run"])
@pytest.mark.parametrize(
    ("grader", "param"),
    [
        ({**CHECK, "operation": "equals"}, "grader.operation"),
        ({**MULTI, "calculate_output": "exact +"}, "grader.calculate_output"),
        ({"type": "endpoint", "url": "http://x"}, "grader.type"),
        ({}, "grader.type"),
    ],
)
def test_a_grader_with_a_fault_is_refused_in_its_place(client: OpenAI, grader: Any, param: str, call: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        if call == "run":
            run(client, grader, "x")
        else:
            client.fine_tuning.alpha.graders.validate(grader=grader)
    assert caught.value.param == param


def test_python_that_cannot_be_loaded_is_refused(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="SyntaxError"):
        run(client, python("return ("), "x")


def rate(asked: Asked) -> Reply:
    """A judge that gives 7."""
    answer = json.dumps({"result": 7.0, "steps": []})
    message = {"role": "assistant", "content": answer}
    return Reply(
        body={
            "id": "1",
            "object": "chat.completion",
            "created": 1,
            "model": "gpt-x-1",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14},
        }
    )


def test_a_judge_gets_its_key_from_the_secrets(client: OpenAI) -> None:
    with ChatEndpoint(rate) as endpoint:
        result = run(client, judge(base_url=endpoint.url, api_key_env="JUDGE_KEY"), "a fine answer")
    (asked,) = endpoint.asked
    assert (asked.key, asked.body["model"]) == ("Bearer the-key-of-the-judge", "gpt-x")
    assert "a fine answer" in json.dumps(asked.body["messages"])
    assert (result.reward, result.metadata.token_usage, result.metadata.sampled_model_name) == (7.0, 14, "gpt-x-1")
    usage: Any = result.api_model_grader_token_usage_per_model["gpt-x-1"]
    assert usage == {"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14, "cached_tokens": 0}


def test_a_judge_without_a_key_is_refused_with_what_to_do(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="NO_SUCH_KEY: store it as a secret"):
        run(client, judge(api_key_env="NO_SUCH_KEY"), "x")
