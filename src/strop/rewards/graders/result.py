"""One grader run on one sample, with all that OpenAI's `graders/run` tells about it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from strop.config import RewardConfig
from strop.endpoints.replies import Usage
from strop.rewards.grade_arguments import sample_payload
from strop.rewards.graders.function import GraderFunction
from strop.rewards.graders.grade import Grade
from strop.rewards.graders.grader import Grader
from strop.rewards.graders.multi import Multi
from strop.types import Failure, Json, Message, Rollout, StopReason, Turn

FLAGS = (
    "formula_parse_error",
    "sample_parse_error",
    "truncated_observation_error",
    "unresponsive_reward_error",
    "invalid_variable_error",
    "other_error",
    "python_grader_server_error",
    "python_grader_runtime_error",
    "model_grader_server_error",
    "model_grader_refusal_error",
    "model_grader_parse_error",
)
"""OpenAI's boolean error flags; three more fields give details as text."""

_BY_CAUSE = {
    "formula": "formula_parse_error",
    "variable": "invalid_variable_error",
    "judge": "model_grader_server_error",
    "refusal": "model_grader_refusal_error",
    "parse": "model_grader_parse_error",
}
_BY_CAUSE_IN_PYTHON = {
    "timeout": "unresponsive_reward_error",
    "start": "python_grader_server_error",
    "protocol": "python_grader_server_error",
}


@dataclass(frozen=True)
class GraderResult:
    """What a grader made of one sample.

    Where there is a `failure` there is no reward: `reward` is None, and a flag says what kind of
    failure it is. A flag beside a reward tells what was wrong with the sample.
    """

    name: str
    type: str
    reward: float | None
    failure: Failure | None
    errors: Mapping[str, bool | str | None]
    """All 14 fields that OpenAI has."""
    seconds: float
    sub_rewards: Mapping[str, float] = field(default_factory=dict)
    """Values of the parts of a multi grader that have one."""
    usage: Mapping[str, Usage] = field(default_factory=dict)
    """Tokens by the name of the judge."""
    judge: str | None = None
    """The model that judged, as its server calls it; None for other graders."""
    logs: str = ""

    def response(self) -> dict[str, Json]:
        """The answer of `POST /v1/fine_tuning/alpha/graders/run`. A failed grader has the reward null, not 0."""
        tokens = {name: _usage(usage) for name, usage in self.usage.items()}
        return {
            "reward": self.reward,
            "metadata": {
                "name": self.name,
                "type": self.type,
                "errors": dict(self.errors),
                "execution_time": self.seconds,
                "scores": dict(self.sub_rewards),
                "token_usage": sum(usage["total_tokens"] for usage in tokens.values()) if tokens else None,
                "sampled_model_name": self.judge,
            },
            "sub_rewards": dict(self.sub_rewards),
            "model_grader_token_usage_per_model": tokens,
        }


async def run_grader(
    grader: Grader,
    model_sample: str,
    item: Mapping[str, Json],
    *,
    variables: Mapping[str, str] | None = None,
    timeout_s: float | None = None,
    allow_private: bool = True,
) -> GraderResult:
    """Run a grader on a text as if a model had written it.

    `variables` are all that its judges may read of the environment; `timeout_s` limits each
    part, by default as for a grader in a configuration. Raises RewardError for a grader that
    cannot be used at all: a key or package that is missing, a source that cannot be loaded.
    """
    table: dict[str, Json] = {"name": "grader", "source": "grader.json"}
    config = RewardConfig.model_validate(table | ({} if timeout_s is None else {"timeout_s": timeout_s}))
    function = GraderFunction(config, grader, variables or {}, allow_private)
    try:
        await function.start()
        started = time.monotonic()
        grade = await function.grade(sample_of(model_sample), item, seed=0)
        return _result(grader, grade, time.monotonic() - started)
    finally:
        await function.close()


def sample_of(text: str) -> dict[str, Json]:
    """A sample whose only turn is this text."""
    message = Message("assistant", text)
    return sample_payload(Rollout(0, (Turn(message, StopReason.STOP, 0),), StopReason.STOP))


def _result(grader: Grader, grade: Grade, seconds: float) -> GraderResult:
    usage: dict[str, Usage] = {}
    for _, part in _leaves(grader, grade):
        if part.answered_by:
            usage[part.answered_by] = usage.get(part.answered_by, Usage()) + part.usage
    return GraderResult(
        name=grader.name,
        type=grader.type,
        reward=grade.value,
        failure=grade.failure,
        errors=_errors(grader, grade),
        seconds=seconds,
        sub_rewards={name: part.value for name, part in grade.parts.items() if part.value is not None},
        usage=usage,
        judge=grade.answered_by,
        logs=grade.logs,
    )


def _leaves(grader: Grader, grade: Grade) -> Iterator[tuple[Grader, Grade]]:
    """A grader's parts with their grades, or itself."""
    if isinstance(grader, Multi) and grade.parts:
        yield from ((grader.parts[name], part) for name, part in grade.parts.items())
    else:
        yield grader, grade


def _errors(grader: Grader, grade: Grade) -> dict[str, bool | str | None]:
    """The flags of a grader and of all its parts."""
    errors: dict[str, bool | str | None] = dict.fromkeys(FLAGS, False)
    details: dict[str, bool | str | None] = {
        "python_grader_server_error_type": None,
        "python_grader_runtime_error_details": None,
        "model_grader_server_error_details": None,
    }
    leaves = list(_leaves(grader, grade))
    if grade.failure and not any(part.failure for _, part in leaves):
        leaves.append((grader, grade))  # the formula itself
    for part, made in leaves:
        if made.fault:
            errors[made.fault] = True
        if made.failure:
            flag = flag_of(part, made.failure)
            errors[flag] = True
            details |= _details(flag, made.failure)
    return errors | details


def flag_of(grader: Grader, failure: Failure) -> str:
    """OpenAI's flag for a failure of a grader, by its cause."""
    if grader.type == "python":
        return _BY_CAUSE_IN_PYTHON.get(failure.cause, "python_grader_runtime_error")
    return _BY_CAUSE.get(failure.cause, "other_error")


def _details(flag: str, failure: Failure) -> dict[str, str]:
    match flag:
        case "python_grader_server_error":
            return {"python_grader_server_error_type": failure.cause}
        case "python_grader_runtime_error":
            text = f"{failure.message}\n{failure.detail}".rstrip()
            return {"python_grader_runtime_error_details": text}
        case "model_grader_server_error":
            return {"model_grader_server_error_details": failure.message}
    return {}


def _usage(usage: Usage) -> dict[str, int]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "cached_tokens": usage.cached_tokens,
    }
