"""Writes each training step into the run folder."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from strop.store.rundir import RunDir, RunState
from strop.types import Group, Json, Rollout, StepRecord


class RunRecorder:
    """A `Recorder` over a run folder: rollouts, then metrics, then the log line and the status."""

    def __init__(self, run: RunDir) -> None:
        self._run = run

    def record(self, record: StepRecord) -> None:
        """Make the step durable; an error here must stop the run."""
        if record.groups:
            self._run.write_rollouts(record.step, rollout_lines(record))
        self._run.append_metrics(record.step, record.metrics)
        for note in record.notes:
            self._run.log(note)
        self._run.log(summary(record))
        self._run.set_status(RunState.RUNNING, step=record.step)

    def close(self) -> None:
        """Nothing is held open."""


def rollout_lines(record: StepRecord) -> list[dict[str, Json]]:
    """One object for each rollout of a step, each complete in itself."""
    return [
        _rollout(record.step, group, rollout, advantage)
        for group, advantages in zip(record.groups, record.advantages, strict=True)
        for rollout, advantage in zip(group.rollouts, advantages or [None] * len(group.rollouts), strict=True)
    ]


def _rollout(step: int, group: Group, rollout: Rollout, advantage: float | None) -> dict[str, Json]:
    reward, failure = rollout.reward, rollout.failure
    return {
        "step": step,
        "row": group.row.id,
        "line": group.row.line,
        "sample": rollout.index,
        "reward": reward.total if reward else None,
        "components": dict(reward.components) if reward else {},
        "weights": dict(reward.weights) if reward else {},
        "advantage": advantage,
        "stop_reason": rollout.stop_reason,
        "failure": {"cause": failure.cause, "message": failure.message, "detail": failure.detail} if failure else None,
        "prompt": [message.as_dict() for message in group.row.messages],
        "messages": [message.as_dict() for message in rollout.messages],
        "prompt_ids": list(group.prompt_ids_T),
        "token_ids": list(rollout.token_ids_T),
        "sampled_mask": [int(sampled) for sampled in rollout.sampled_mask_T],
        "sampler_logprobs": [round(logprob, 6) for logprob in rollout.sampler_logprobs_T],
        "length": rollout.length,
        "entropy": None if rollout.entropy is None else round(rollout.entropy, 6),
        "logs": rollout.logs,
        "timing": {name: round(seconds, 4) for name, seconds in rollout.timing.items()},
    }


def summary(record: StepRecord) -> str:
    """The line of a step: `loss 4.11e-5 • grad 0.505 • lr 2.00e-6 @ step 101`, rewards behind it."""
    metrics = record.metrics
    parts = [
        _part(metrics, "loss", "loss", "{:.2e}"),
        _part(metrics, "grad_norm", "grad", "{:.3f}"),
        _part(metrics, "learning_rate", "lr", "{:.2e}"),
    ]
    rewards = [
        _part(metrics, "reward", "reward", "{:.3f}"),
        _part(metrics, "solve_rate", "solved", "{:.2f}"),
        _part(metrics, "response_length", "length", "{:.1f}"),
        _part(metrics, "validation/reward", "validation", "{:.3f}"),
    ]
    return f"{_joined(parts) or 'no update'} @ step {record.step}" + (f" | {_joined(rewards)}" if any(rewards) else "")


def _part(metrics: Mapping[str, float], key: str, label: str, form: str) -> str:
    if key not in metrics:
        return ""
    # 4.11e-5 and not 4.11e-05.
    return f"{label} {re.sub('(?<=e[+-])0', '', form.format(metrics[key]))}"


def _joined(parts: Sequence[str]) -> str:
    return " • ".join(part for part in parts if part)
