"""Bodies as OpenAI's and Azure's documentation shape them become runs; what cannot be is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from strop.errors import InvalidRequest
from strop.services.job_order import DataFile, Order, StartModel, translate, usual_interval
from strop.services.job_request import JobRequest
from strop.services.reward_tables import RewardSource, grader_name

STRING_CHECK = {
    "type": "string_check",
    "name": "Exact match",
    "input": "{{sample.output_text}}",
    "reference": "{{item.answer}}",
    "operation": "eq",
}


class FakeLibrary:
    """Files of 100 rows; a model whose template is what the test says; one reward with two versions."""

    def __init__(self, template: str | None = "", variables: tuple[str, ...] = ()) -> None:
        self.template = template
        self.variables = variables

    def data(self, file_id: str, param: str) -> DataFile:
        return DataFile(f"files/{file_id}", 100)

    def model(self, name: str) -> StartModel:
        return StartModel(name, name.rpartition("/")[2], self.template)

    def reward(self, name: str, version: int | None) -> RewardSource:
        return RewardSource(f"rewards/{name}/{version or 2}/reward.py:grade", ("API_KEY",))

    def judge_url(self, model: str) -> str | None:
        return "http://127.0.0.1:8100/v1" if model == "ours" else None

    def has_variable(self, name: str) -> bool:
        return name in self.variables


def order(library: FakeLibrary | None = None, **fields: Any) -> Order:
    body = {"model": "qwen3-0.6b", "training_file": "file-train", "method": reinforcement(), **fields}
    return translate(JobRequest.model_validate(body), 5, library or FakeLibrary())


def reinforcement(grader: dict[str, Any] | None = STRING_CHECK, **fields: Any) -> dict[str, Any]:
    return {"type": "reinforcement", "reinforcement": {"grader": grader, **fields}}


def refusal(**fields: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        order(**fields)
    return caught.value


def fault(**fields: Any) -> str:
    """Message of what pydantic refuses."""
    with pytest.raises(ValidationError) as caught:
        order(**fields)
    return str(caught.value)


# Bodies of the shapes that the guides show; the names of their fields are what matters.
OPENAI_GUIDE = {
    "model": "smollm2-135m",
    "training_file": "file-train",
    "validation_file": "file-test",
    "suffix": "security expert",
    "seed": 42,
    "metadata": {"team": "compliance"},
    "method": {
        "type": "reinforcement",
        "reinforcement": {
            "grader": {
                "type": "multi",
                "graders": {
                    "explanation": {
                        "type": "score_model",
                        "name": "explanation",
                        "model": "gpt-4o-mini-2024-07-18",
                        "input": [{"role": "user", "type": "message", "content": "Rate {{sample.output_text}}"}],
                        "range": [0, 1],
                        "sampling_params": {"temperature": 0, "seed": 1},
                    },
                    "compliant": {
                        "type": "string_check",
                        "name": "compliant",
                        "operation": "eq",
                        "input": "{{sample.output_json.compliant}}",
                        "reference": "{{item.compliant}}",
                    },
                },
                "calculate_output": "0.5 * explanation + 0.5 * compliant",
            },
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "answer", "strict": True, "schema": {"type": "object", "properties": {}}},
            },
            "hyperparameters": {"reasoning_effort": "medium"},
        },
    },
    "integrations": [{"type": "wandb", "wandb": {"project": "security", "tags": ["rft"]}}],
}
AZURE_GUIDE = {
    "model": "smollm2-135m",
    "training_file": "file-train",
    "validation_file": "file-test",
    "trainingType": "GlobalStandard",
    "suffix": "countdown",
    "method": {
        "type": "reinforcement",
        "reinforcement": {
            "grader": {
                "type": "python",
                "name": "countdown",
                "source": "def grade(sample, item):\n    return 1.0\n",
                "pass_threshold": 0.8,
            },
            "hyperparameters": {
                "eval_interval": 10,
                "eval_samples": 2,
                "compute_multiplier": 1.5,
                "n_epochs": 3,
                "batch_size": 16,
                "learning_rate_multiplier": 0.5,
                "reasoning_effort": "low",
            },
        },
    },
}
AUTO = {
    "model": "smollm2-135m",
    "training_file": "file-train",
    "method": reinforcement(
        hyperparameters={
            "batch_size": "auto",
            "compute_multiplier": "auto",
            "eval_interval": "auto",
            "eval_samples": "auto",
            "learning_rate_multiplier": "auto",
            "n_epochs": "auto",
            "reasoning_effort": "default",
        }
    ),
}


def test_a_body_of_openais_guide_becomes_a_run() -> None:
    made = translate(JobRequest.model_validate(OPENAI_GUIDE), 5, FakeLibrary())
    config = made.config
    assert (config.model, config.seed) == ("smollm2-135m", 42)
    assert (config.data.train, config.data.validation) == ("files/file-train", "files/file-test")
    assert config.name == "security-expert"
    assert (config.recorders, config.wandb.project, config.wandb.tags) == (("wandb",), "security", ("rft",))
    (reward,) = config.rewards
    assert (reward.name, list(made.files)) == ("multi", [reward.source])
    assert reward.source.startswith("rewards/inline/") and reward.source.endswith("/grader.json")
    assert json.loads(made.files[reward.source]) == OPENAI_GUIDE["method"]["reinforcement"]["grader"]  # type: ignore[index]
    assert any("response_format is not enforced" in note for note in made.notes)


def test_a_body_of_azures_guide_becomes_a_run() -> None:
    config = translate(JobRequest.model_validate(AZURE_GUIDE), 5, FakeLibrary()).config
    train = config.train
    assert (train.batch_size, train.epochs, train.learning_rate_multiplier) == (16, 3, 0.5)
    assert (train.samples_per_prompt, train.eval_every, train.save_every) == (12, 10, 10)
    # Two greedy answers would be the same one.
    assert (config.eval.samples, config.eval.temperature, config.eval.pass_threshold) == (2, 1.0, 0.8)


def test_auto_leaves_strops_defaults() -> None:
    config = translate(JobRequest.model_validate(AUTO), 5, FakeLibrary()).config
    usual = order(method=reinforcement()).config
    assert (config.train, config.eval, config.sampling) == (usual.train, usual.eval, usual.sampling)
    assert config.seed == 5


def test_with_a_validation_file_auto_evaluates_ten_times() -> None:
    assert order().config.train.eval_every == 0
    made = order(validation_file="file-test", hyperparameters={"batch_size": 1, "n_epochs": 2})
    assert made.config.train.eval_every == 20
    assert made.config.train.save_every == 20
    few = order(validation_file="file-test", strop={"train": {"max_steps": 3}})
    assert few.config.train.eval_every == 1


def test_hyperparameters_of_the_method_win_over_those_at_the_top() -> None:
    made = order(
        hyperparameters={"batch_size": 2, "n_epochs": 5}, method=reinforcement(hyperparameters={"batch_size": 3})
    )
    assert (made.config.train.batch_size, made.config.train.epochs) == (3, 5)


def test_tables_under_strop_win_over_what_openais_fields_say() -> None:
    made = order(
        method=reinforcement(hyperparameters={"batch_size": 3, "n_epochs": 2}),
        strop={"name": "mine", "train": {"batch_size": 7}, "sampling": {"max_completion_tokens": 32}, "lora": {"r": 4}},
    )
    config = made.config
    assert (config.name, config.train.batch_size, config.train.epochs) == ("mine", 7, 2)
    assert (config.sampling.max_completion_tokens, config.lora.r) == (32, 4)


def test_rewards_under_strop_replace_the_grader() -> None:
    made = order(
        method=None,
        strop={
            "rewards": [
                {"name": "stored", "reward": "rw_1", "version": 1, "weight": 0.5},
                {"name": "code", "python": "def score(sample, item): return 1", "function": "score", "workers": 1},
                {"name": "graded", "grader": STRING_CHECK, "weight": 0.25},
            ]
        },
    )
    stored, code, graded = made.config.rewards
    assert (stored.source, stored.weight, stored.env) == ("rewards/rw_1/1/reward.py:grade", 0.5, ("API_KEY",))
    assert code.source.endswith("/reward.py:score")
    assert (graded.timeout_s, code.timeout_s, code.workers) == (120, 10, 1)
    assert set(made.files) == {code.source.removesuffix(":score"), graded.source}


def judge(**fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "Rate {{sample.output_text}}"}]
    return {"type": "score_model", "name": "judge", "model": "gpt", "input": messages, **fields}


@pytest.mark.parametrize(
    ("fields", "variables", "env", "url"),
    [
        ({}, (), ("OPENAI_API_KEY",), None),
        ({}, ("OPENAI_BASE_URL",), ("OPENAI_BASE_URL", "OPENAI_API_KEY"), None),
        ({"model": "ours"}, (), (), "http://127.0.0.1:8100/v1"),
        ({"model": "ours", "base_url": "http://other/v1"}, (), (), "http://other/v1"),
        ({"api_key_env": "MY_KEY"}, (), ("MY_KEY",), None),
        ({"model": "ours", "api_key_env": "MY_KEY"}, (), ("MY_KEY",), "http://127.0.0.1:8100/v1"),
    ],
)
@pytest.mark.parametrize("inside", ["alone", "map", "list", "single"])
def test_judges_of_this_server_are_found_and_the_others_get_their_key(
    fields: dict[str, Any], variables: tuple[str, ...], env: tuple[str, ...], url: str | None, inside: str
) -> None:
    graders = {"map": {"a": judge(**fields)}, "list": [judge(**fields)], "single": judge(**fields)}
    multi = {"type": "multi", "calculate_output": "a" if inside == "map" else "judge", "graders": graders.get(inside)}
    grader = judge(**fields) if inside == "alone" else multi
    made = order(FakeLibrary(variables=variables), method=reinforcement(grader))
    (reward,) = made.config.rewards
    assert reward.env == env
    written = json.loads(made.files[reward.source])
    part = {
        "alone": lambda: written,
        "map": lambda: written["graders"]["a"],
        "list": lambda: written["graders"][0],
        "single": lambda: written["graders"],
    }[inside]()
    assert part.get("base_url") == url


def test_azures_grade_for_failures_is_said_to_have_no_effect() -> None:
    multi = {"type": "multi", "graders": {"a": STRING_CHECK}, "calculate_output": "a", "invalid_grade": 0.0}
    made = order(method=reinforcement(multi))
    assert "invalid_grade has no effect" in made.notes[0]


def test_a_grader_that_cannot_be_read_is_refused_at_once() -> None:
    error = refusal(method=reinforcement({"type": "string_check", "name": "a", "input": "x", "reference": "y"}))
    assert error.param == "method.reinforcement.grader.operation"


def test_the_same_grader_has_one_place() -> None:
    assert order(suffix="one").files == order(suffix="two").files
    other = order(method=reinforcement({**STRING_CHECK, "operation": "ne"}))
    assert other.files.keys() != order().files.keys()


@pytest.mark.parametrize(
    ("template", "effort", "options"),
    [
        ("{{ reasoning_effort }}", "high", {"reasoning_effort": "high"}),
        ("{% if enable_thinking %}", "high", {"enable_thinking": True}),
        ("{% if enable_thinking %}", "low", {"enable_thinking": False}),
        ("{% if enable_thinking %}", "default", {}),
    ],
)
def test_reasoning_effort_goes_to_templates_that_know_it(template: str, effort: str, options: dict[str, Any]) -> None:
    made = order(FakeLibrary(template), method=reinforcement(hyperparameters={"reasoning_effort": effort}))
    assert made.config.sampling.template == options
    assert made.notes == ()


@pytest.mark.parametrize(("template", "reason"), [("", "knows no such option"), (None, "not on this machine yet")])
def test_reasoning_effort_without_effect_is_said(template: str | None, reason: str) -> None:
    made = order(FakeLibrary(template), method=reinforcement(hyperparameters={"reasoning_effort": "high"}))
    assert made.config.sampling.template == {}
    assert reason in made.notes[0]


@pytest.mark.parametrize(
    ("method", "param"),
    [({"type": "supervised"}, "method.type"), ({"type": "dpo", "dpo": {}}, "method.type"), (None, "method")],
)
def test_other_methods_are_refused(method: Any, param: str) -> None:
    error = refusal(method=method)
    assert "trains by reinforcement" in error.message
    assert error.param == param


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({"method": {"type": "reinforcement"}}, "method.reinforcement", "contains the grader"),
        ({"method": reinforcement(None)}, "method.reinforcement.grader", "missing"),
        (
            {"method": reinforcement(hyperparameters={"eval_interval": 2})},
            "method.reinforcement.hyperparameters.eval_interval",
            "needs a validation_file",
        ),
        ({"strop": {"train": {"batchsize": 3}}}, "strop.train.batchsize", "did you mean 'batch_size'?"),
        ({"strop": {"sampling": {"temperature": 0}}}, "strop.sampling.temperature", "greater than 0"),
        ({"strop": {"environment": {"name": "chess"}}}, "strop.environment.name", "expected one of single_turn"),
        ({"strop": {"rewards": [{"name": "a"}]}}, "strop.rewards[0]", "found none of them"),
        ({"strop": {"rewards": [{"name": "a", "python": "def"}]}}, "strop.rewards[0].python", "not valid Python code"),
        ({"strop": {"rewards": [{"name": "a", "python": "x = 1"}]}}, "strop.rewards[0].function", "no function"),
        ({"integrations": [{"type": "wandb", "wandb": {"project": "a"}}] * 2}, "integrations", "one"),
    ],
)
def test_what_cannot_work_is_refused_with_its_field(fields: dict[str, Any], param: str, message: str) -> None:
    error = refusal(**fields)
    assert error.param == param
    assert message in error.message


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"modle": "x"}, "unknown key modle; did you mean 'model'?"),
        ({"method": reinforcement(hyperparameters={"epochs": 3})}, "unknown key epochs; did you mean 'n_epochs'?"),
        ({"method": reinforcement(tools=[])}, "unknown key tools; expected one of grader, hyperparameters"),
        ({"strop": {"sample": {}}}, "unknown key sample; did you mean 'sampling'?"),
        ({"method": reinforcement(hyperparameters={"batch_size": 257})}, "less than or equal to 256"),
        ({"method": reinforcement(hyperparameters={"n_epochs": "many"})}, "valid integer"),
        ({"metadata": {str(number): "" for number in range(17)}}, "at most 16 items"),
        ({"suffix": "x" * 65}, "at most 64 characters"),
        ({"seed": 2**31}, "less than 2147483648"),
    ],
)
def test_unknown_keys_and_bad_values_are_named(fields: dict[str, Any], message: str) -> None:
    assert message in fault(**fields)


@pytest.mark.parametrize(
    ("grader", "name"),
    [
        ({"name": "Exact match!", "type": "string_check"}, "Exact_match"),
        ({"name": "1st", "type": "python"}, "python"),
        ({"name": None, "type": "multi"}, "multi"),
        ({}, "grader"),
    ],
)
def test_a_reward_is_called_after_its_grader(grader: dict[str, Any], name: str) -> None:
    assert grader_name(grader) == name


@pytest.mark.parametrize(("suffix", "name"), [(None, "Qwen3-0.6B"), ("a/b c", "a-b-c"), ("///", "job"), ("..x", "x")])
def test_runs_are_called_after_the_suffix_or_the_model(suffix: str | None, name: str) -> None:
    assert order(model="Qwen/Qwen3-0.6B", suffix=suffix).config.name == name


@pytest.mark.parametrize(("steps", "every"), [(0, 1), (1, 1), (10, 1), (18, 2), (100, 10), (101, 11)])
def test_a_run_is_validated_at_most_ten_times_of_itself(steps: int, every: int) -> None:
    assert usual_interval(steps) == every
