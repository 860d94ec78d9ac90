"""Events about training in the shapes that OpenAI gives reinforcement fine-tuning.

What strop does not measure is null there; counts and means are numbers as in metrics.jsonl.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from strop.jobs.job import Job
from strop.jobs.kind import Settled
from strop.jobs.task import NewEvent, TaskStatus
from strop.types import Json

# OpenAI's kinds of errors by the cause of a failure; every other cause lies in what runs the grader.
_FLAGS = {
    **dict.fromkeys(("exception", "load", "nan", "none", "size", "type"), "python_grader_runtime_error"),
    "formula": "formula_parse_error",
    "judge": "model_grader_server_error",
    "parse": "model_grader_parse_error",
    "refusal": "model_grader_refusal_error",
    "variable": "invalid_variable_error",
}


def step_event(job: Job, metrics: Mapping[str, Json], total_steps: int | None) -> NewEvent:
    """The `metrics` event of a step, from its line in metrics.jsonl."""
    step = metrics["step"]
    parts = [f"Step {step}/{total_steps if total_steps is not None else '?'} "]
    for label, value in (
        ("train mean reward", metrics.get("reward")),
        ("full validation mean reward", metrics.get("validation/reward")),
    ):
        if value is not None:
            parts.append(f"{label}={value:.2f}")
    data = _step_data(job, metrics, total_steps)
    return NewEvent(", ".join(parts).rstrip(), type="metrics", data=data, once=f"step:{step}")


def checkpoint_event(job: Job, entry: Mapping[str, Json]) -> NewEvent:
    """The event of a checkpoint, from its entry in checkpoint_status.json."""
    step = entry["step"]
    return NewEvent(
        f"Checkpoint created at step {step} with Snapshot ID: {job.model_name}:ckpt-step-{step}",
        data={"step": step, "validation_reward": entry["validation_reward"], "bytes": entry["size"]},
        once=f"checkpoint:{step}",
    )


def ending_events(job: Job, outcome: Settled) -> list[NewEvent]:
    """The events about the end of a job, or about its pause."""
    match outcome.status:
        case TaskStatus.SUCCEEDED:
            model = job.model_name
            return [
                NewEvent(f"New fine-tuned model created: {model}", data={"fine_tuned_model": model}),
                NewEvent("The job has successfully completed"),
            ]
        case TaskStatus.PAUSED:
            return [NewEvent(f"Job paused: {outcome.reason}", level="warn" if outcome.code else "info")]
        case TaskStatus.FAILED:
            return [NewEvent(f"Job failed: {outcome.reason}", level="error")]
    return [NewEvent("Job cancelled")]


def _step_data(job: Job, metrics: Mapping[str, Json], total_steps: int | None) -> dict[str, Json]:
    train, valid = metrics.get("reward"), metrics.get("validation/reward")
    samples = job.config.train.batch_size * job.config.train.samples_per_prompt
    errored = metrics.get("rollouts_errored")
    return {
        "step": metrics["step"],
        "total_steps": total_steps,
        "train_mean_reward": train,
        "full_valid_mean_reward": valid,
        "full_valid_mean_parse_error": None,
        "mean_unresponsive_rewards": None if errored is None else errored / samples,
        "reasoning_tokens_mean": None,
        "completion_tokens_mean": metrics.get("response_length"),
        "valid_reasoning_tokens_mean": None,
        "valid_completion_tokens_mean": metrics.get("validation/response_length"),
        "model_graders_token_usage": {},
        "scores": {"train_reward_mean": train, "valid_reward_mean": valid, "graders": _scores(job, metrics)},
        "usage": {"graders": [], "samples": {}},
        "errors": {"graders": _errors(job, metrics, samples)},
        "timing": {"step": _timing(metrics), "graders": []},
    }


def _scores(job: Job, metrics: Mapping[str, Json]) -> list[dict[str, Json]]:
    """One entry for each reward component; the parts of a multi grader by their own names and types."""
    names = [name.removeprefix("reward/") for name in metrics if name.startswith("reward/")]
    return [
        {
            "name": shown,
            "type": kind,
            "train_reward_mean": metrics.get(f"reward/{name}"),
            "valid_reward_mean": metrics.get(f"validation/reward/{name}"),
        }
        for name in names
        for shown, kind in [_part(job, name)]
    ]


def _part(job: Job, component: str) -> tuple[str, str]:
    """Name and type of the grader behind a reward component."""
    grader = _grader(job)
    parts = grader.get("graders")
    name = component.removeprefix(f"{job.config.rewards[0].name}/")
    part = parts.get(name) if isinstance(parts, Mapping) else None
    return (name, str(part.get("type"))) if isinstance(part, Mapping) else (component, _grader_type(job))


def _errors(job: Job, metrics: Mapping[str, Json], samples: int) -> list[dict[str, Json]]:
    """Failures by kind. Which of several rewards failed is on the rollouts only."""
    if "rollouts_errored" not in metrics:
        return []
    kind = _grader_type(job)
    other = "python_grader_server_error" if kind == "python" else "other_error"
    counts = dict.fromkeys(("python_grader_runtime_error", other), 0.0)
    for name, count in metrics.items():
        if name.startswith("failures/"):
            flag = _FLAGS.get(name.removeprefix("failures/"), other)
            counts[flag] = counts.get(flag, 0.0) + count
    entry: dict[str, Any] = {"name": " + ".join(reward.name for reward in job.config.rewards), "type": kind}
    for flag, count in counts.items():
        entry |= {f"train_{flag}_mean": count / samples, f"train_{flag}_count": count}
    return [entry]


def _timing(metrics: Mapping[str, Json]) -> dict[str, Json]:
    parts = {
        "sampling": metrics.get("time/sample"),
        "training": metrics.get("time/train"),
        "eval": metrics.get("time/validation"),
    }
    known = [value for name, value in metrics.items() if name.startswith("time/")]
    return {**parts, "full_iteration": sum(known) if known else None}


def _grader_type(job: Job) -> str:
    """As the request has it; `python` where the rewards are functions."""
    return str(_grader(job).get("type", "python"))


def _grader(job: Job) -> Mapping[str, Json]:
    """The grader of the request; empty where it has none."""
    found: Any = job.request
    for key in ("method", "reinforcement", "grader"):
        found = found.get(key) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else {}
