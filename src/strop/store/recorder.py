"""Writes each training step into the run folder: see `store.rollout_lines` for its rollouts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from strop.store.rollout_lines import rollout_lines
from strop.store.rundir import RunDir, RunState
from strop.types import StepRecord


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
