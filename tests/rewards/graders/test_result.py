"""graders/run: flags, sub-rewards, tokens, and the shape of OpenAI's answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from grading import check
from judge_server import Reply, fails, says, scores, serving
from openai.types.fine_tuning.alpha import GraderRunResponse

from strop.endpoints.replies import Usage
from strop.errors import RewardError
from strop.rewards.graders.parse import parse_grader
from strop.rewards.graders.result import FLAGS, GraderResult, run_grader

ITEM = {"answer": "4"}


def run(grader: Any, text: str = "4", item: dict[str, Any] | None = None, **options: Any) -> GraderResult:
    return asyncio.run(run_grader(parse_grader(grader), text, ITEM if item is None else item, **options))


def python(body: str) -> dict[str, Any]:
    return {"type": "python", "name": "code", "source": f"def grade(sample, item):\n    {body}\n"}


def score_model(url: str, **changes: Any) -> dict[str, Any]:
    shape = {"type": "score_model", "model": "judge", "input": [{"role": "user", "content": "{{sample.output_text}}"}]}
    return shape | {"base_url": url} | changes


def raised(result: GraderResult) -> set[str]:
    return {flag for flag in FLAGS if result.errors[flag]}


def test_a_run_has_reward_name_type_and_time() -> None:
    result = run(check())
    assert (result.reward, result.failure, result.name, result.type) == (1.0, None, "exact", "string_check")
    assert raised(result) == set()
    assert result.seconds > 0


def test_all_fourteen_fields_of_errors_are_there() -> None:
    errors = run(check()).errors
    assert len(errors) == 14
    assert [name for name, value in errors.items() if value is None] == [
        "python_grader_server_error_type",
        "python_grader_runtime_error_details",
        "model_grader_server_error_details",
    ]


@pytest.mark.parametrize(
    ("grader", "text", "flag", "reward"),
    [
        (check(reference="{{item.x}}"), "4", "invalid_variable_error", None),
        (check(input="{{sample.output_json.a}}"), '{"b": 1}', "invalid_variable_error", 0.0),
        (check(input="{{sample.output_json.a}}"), "no JSON", "sample_parse_error", 0.0),
        (python("raise ValueError('no')"), "4", "python_grader_runtime_error", None),
        (python("return None"), "4", "python_grader_runtime_error", None),
        (python("import os; os._exit(1)"), "4", "python_grader_runtime_error", None),
        (python("import time; time.sleep(60)"), "4", "unresponsive_reward_error", None),
        (
            {"type": "multi", "graders": {"a": check()}, "calculate_output": "1 / (a - a)"},
            "4",
            "formula_parse_error",
            None,
        ),
        (
            {"type": "text_similarity", "input": "a" * 100_001, "reference": "a", "evaluation_metric": "bleu"},
            "4",
            "other_error",
            None,
        ),
    ],
)
def test_every_failure_has_its_flag_and_no_reward(grader: Any, text: str, flag: str, reward: float | None) -> None:
    result = run(grader, text, timeout_s=0.5 if flag == "unresponsive_reward_error" else None)
    assert (result.reward, raised(result)) == (reward, {flag})


@pytest.mark.parametrize(
    ("reply", "flag"),
    [
        (fails(404, "no such model"), "model_grader_server_error"),
        (says(None, refusal="no"), "model_grader_refusal_error"),
        (says("good"), "model_grader_parse_error"),
    ],
)
def test_judges_have_flags_of_their_own(reply: Reply, flag: str) -> None:
    with serving(reply) as server:
        result = run(score_model(server.url))
    assert (result.reward, raised(result)) == (None, {flag})
    details = result.errors["model_grader_server_error_details"]
    assert ("no such model" in str(details)) == (flag == "model_grader_server_error")


def test_the_traceback_of_a_python_grader_is_told() -> None:
    details = run(python("raise ValueError('no')")).errors["python_grader_runtime_error_details"]
    assert isinstance(details, str)
    assert details.startswith("ValueError: no at grader.py:2\nTraceback")


def test_a_multi_grader_tells_its_parts_and_all_that_went_wrong() -> None:
    with serving(scores(0.5)) as server:
        graders = {
            "exact": check(),
            "judge": score_model(server.url),
            "other": score_model(server.url, input=[{"role": "user", "content": "Is it good?"}]),
            "form": check(input="{{sample.output_json.a}}"),
            "code": python("return 1 / 0"),
        }
        formula = "exact + judge + other + form"
        result = run({"type": "multi", "graders": graders, "calculate_output": formula}, "four", {"answer": "four"})
    assert result.reward == 2.0
    assert result.sub_rewards == {"exact": 1.0, "judge": 0.5, "other": 0.5, "form": 0.0}
    assert raised(result) == {"sample_parse_error", "python_grader_runtime_error"}
    assert result.usage == {"judge-2025": Usage(40, 10, 8)}


def test_the_response_is_what_openais_client_reads() -> None:
    with serving(scores(0.5)) as server:
        response = run(score_model(server.url, name="style")).response()
    read = GraderRunResponse.model_validate(response)
    assert read.reward == 0.5
    assert (read.metadata.name, read.metadata.type) == ("style", "score_model")
    assert (read.metadata.token_usage, read.metadata.sampled_model_name) == (25, "judge-2025")
    assert read.metadata.errors.api_model_grader_parse_error is False
    tokens = {"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25, "cached_tokens": 4}
    assert read.api_model_grader_token_usage_per_model == {"judge-2025": tokens}


def test_the_response_of_a_failed_grader_has_no_number_to_mistake_for_a_score() -> None:
    response = run(python("return 1 / 0")).response()
    assert response["reward"] is None
    assert response["metadata"]["errors"]["python_grader_runtime_error"] is True
    assert response["metadata"]["token_usage"] is None


def test_a_sample_that_is_json_is_there_as_a_value() -> None:
    assert run(check(input="{{sample.output_json.a}}"), '{"a": "4"}').reward == 1.0


def test_only_the_variables_that_are_given_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_KEY", "sk-in-the-environment")
    with serving(scores(1)) as server:
        grader = score_model(server.url, api_key_env="JUDGE_KEY")
        with pytest.raises(RewardError, match=r"needs \$JUDGE_KEY"):
            run(grader)
        assert run(grader, variables={"JUDGE_KEY": "sk-given"}).reward == 1.0
    assert [headers["authorization"] for headers in server.headers] == ["Bearer sk-given"]


def test_a_source_that_cannot_be_loaded_is_refused() -> None:
    with pytest.raises(RewardError, match="SyntaxError"):
        run({"type": "python", "source": "def grade(sample, item)"})
