"""The training loop: sample, score, update, record, and now and then validate and save.

One step, top to bottom, in `Trainer._step`. The loop knows no files: recorders keep what a
step leaves behind, `Checkpoints` keeps the weights. The order of writing is what makes a
crash harmless: a step is recorded before the checkpoint that contains it, and a run that
resumes from a checkpoint forgets what was recorded after it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from strop.config import RunConfig
from strop.data.order import DataOrder
from strop.errors import TooManyFailures, TrainingDiverged
from strop.metrics import group_metrics, mean_advantage, prefixed
from strop.rollout import Player, RolloutScorer, run_groups
from strop.seeds import derive_seed
from strop.train.advantage import ADVANTAGES
from strop.train.batch import samples_of
from strop.train.learner import Learner, Update
from strop.train.schedule import rate_at
from strop.types import Group, Recorder, Row, SamplingParams, StepRecord

# The share of failed groups is taken over this many of the newest, so that a judge that dies
# late in a run is noticed as soon as one that never worked; and over no fewer than the second
# number, so that one flaky call in the first step does not end a run.
_FAILURE_WINDOW = 32
_FAILURE_FLOOR = 8


class Ending(StrEnum):
    """The end of a `Trainer.run` call without an error."""

    FINISHED = "finished"
    PAUSED = "paused"


class Checkpoints(Protocol):
    """Saves weights and the state for resuming."""

    @property
    def best_reward(self) -> float | None:
        """Highest validation reward among the checkpoints."""

    def save(self, step: int, validation_reward: float | None) -> None:
        """Save the state after `step`."""


Validate = Callable[[], Awaitable[Mapping[str, float]]]
"""Metrics of the held-out rows under the current weights, without a prefix."""


@dataclass
class Trainer:
    """Everything that the loop works with; built by the worker."""

    config: RunConfig
    rows: Sequence[Row]
    order: DataOrder
    learner: Learner
    peak_rate: float
    player: Player
    scorer: RolloutScorer
    recorders: Sequence[Recorder]
    checkpoints: Checkpoints
    validate: Validate | None
    prompts_dropped: int
    on_phase: Callable[[int, str], None] = lambda step, phase: None
    """Receives step and phase for display."""
    _failures: deque[bool] = field(default_factory=lambda: deque(maxlen=_FAILURE_WINDOW))
    _skipped_in_a_row: int = 0

    @property
    def total_steps(self) -> int:
        """Steps of the whole run."""
        steps = self.config.train.epochs * self.order.steps_per_epoch
        return min(steps, self.config.train.max_steps or steps)

    async def run(self, done: int, should_stop: Callable[[], bool]) -> Ending:
        """Train from after step `done` to the end, or until `should_stop`.

        Raises TooManyFailures and TrainingDiverged, after the step has been recorded and the
        weights, which are sound, have been saved.
        """
        self.learner.publish()
        if done == 0 and self.validate and self.config.train.eval_every:
            self._record(StepRecord(0, await self._validation(0)))
        for step in range(done + 1, self.total_steps + 1):
            record = await self._step(step)
            reward = record.metrics.get("validation/reward")
            self._record(record)
            fault = self._fault(record)
            stopping = fault is not None or (should_stop() and step < self.total_steps)
            if stopping or self._save_due(step, reward):
                self.on_phase(step, "saving")
                self.checkpoints.save(step, reward)
            if fault:
                raise fault
            if stopping:
                return Ending.PAUSED
        return Ending.FINISHED

    async def _step(self, step: int) -> StepRecord:
        """Sample and score one batch of prompts, update the weights, and measure it all."""
        started = time.perf_counter()
        self.on_phase(step, "sampling")
        groups = await run_groups(
            [self.rows[index] for index in self.order.batch(step)],
            self.config.train.samples_per_prompt,
            self._sampling_params(step),
            self.player,
            self.scorer,
        )
        rolled_out = time.perf_counter()
        self.on_phase(step, "training")
        advantages = self._advantages(groups)
        rate = rate_at(step, self.total_steps, self.peak_rate, self.config.train)
        update = self.learner.update(samples_of(groups, advantages), rate)
        self.learner.publish()
        trained = time.perf_counter()
        metrics = {
            **group_metrics(groups),
            **mean_advantage(advantages),
            **update.metrics,
            "learning_rate": rate,
            "step_skipped": float(update.skipped is not None),
            "prompts_dropped": float(self.prompts_dropped),
            **_timings(groups, rolled_out - started, trained - rolled_out),
        }
        if self._validation_due(step):
            metrics |= await self._validation(step)
        self._count(groups, update)
        return StepRecord(step, metrics, tuple(groups), tuple(map(tuple, advantages)), _notes(groups, update))

    def _sampling_params(self, step: int) -> SamplingParams:
        sampling = self.config.sampling
        return SamplingParams(
            temperature=sampling.temperature,
            max_tokens=sampling.max_completion_tokens,
            top_p=sampling.top_p,
            stop=sampling.stop,
            seed=derive_seed(self.config.seed, "train", step),
        )

    def _advantages(self, groups: Sequence[Group]) -> list[list[float]]:
        """One list a group; a group with a failure has none and takes no part in the scale."""
        scale = ADVANTAGES[self.config.advantage_scale]
        scored = iter(scale([group.rewards_G for group in groups if group.failure is None]))
        return [[] if group.failure else next(scored) for group in groups]

    async def _validation(self, step: int) -> dict[str, float]:
        assert self.validate is not None
        self.on_phase(step, "validating")
        started = time.perf_counter()
        metrics = await self.validate()
        return {**prefixed("validation/", metrics), "time/validation": time.perf_counter() - started}

    def _validation_due(self, step: int) -> bool:
        every = self.config.train.eval_every
        return bool(self.validate and every and (step % every == 0 or step == self.total_steps))

    def _save_due(self, step: int, reward: float | None) -> bool:
        """Every so often, at the end, and whenever validation has never been better."""
        best = self.checkpoints.best_reward
        better = reward is not None and (best is None or reward > best)
        every = self.config.train.save_every or self.order.steps_per_epoch
        return better or step % every == 0 or step == self.total_steps

    def _count(self, groups: Sequence[Group], update: Update) -> None:
        self._failures.extend(group.failure is not None for group in groups)
        self._skipped_in_a_row = self._skipped_in_a_row + 1 if update.diverged else 0

    def _fault(self, record: StepRecord) -> TooManyFailures | TrainingDiverged | None:
        """Why the run must stop after this step, or None."""
        failed, seen = sum(self._failures), len(self._failures)
        if failed > self.config.train.max_failed_groups * max(seen, _FAILURE_FLOOR):
            return TooManyFailures(
                f"{failed} of the last {seen} groups could not be scored, more than "
                f"train.max_failed_groups = {self.config.train.max_failed_groups} allows.\n" + "\n".join(record.notes)
            )
        if self._skipped_in_a_row >= self.config.train.max_skipped_steps:
            return TrainingDiverged(
                f"{self._skipped_in_a_row} consecutive steps had no finite loss and gradient; the weights are those "
                "of the last finite update. Lower train.learning_rate, or check the latest rollouts"
            )
        return None

    def _record(self, record: StepRecord) -> None:
        for recorder in self.recorders:
            recorder.record(record)


def _timings(groups: Sequence[Group], rollout_seconds: float, train_seconds: float) -> dict[str, float]:
    """Seconds of the step's parts. Rewards are scored while other groups are still sampled, so
    `time/reward` is the part of the rollouts that came after the last completion."""
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    sample_seconds = max(rollout.timing.get("sample", 0.0) for rollout in rollouts)
    tokens = sum(rollout.length for rollout in rollouts)
    return {
        "time/sample": sample_seconds,
        "time/reward": max(rollout_seconds - sample_seconds, 0.0),
        "time/train": train_seconds,
        "tokens_per_second": tokens / (rollout_seconds + train_seconds),
    }


def _notes(groups: Sequence[Group], update: Update) -> tuple[str, ...]:
    failed = [(group.row.line, group.failure) for group in groups if group.failure]
    notes = [f"row at line {line} dropped: {failure.message}" for line, failure in failed]
    # One traceback is enough to act on; the others are on their rollouts.
    notes += [failure.detail for _, failure in failed[:1] if failure.detail]
    if update.skipped:
        notes.append(f"weights left alone: {update.skipped}")
    if update.cut_short:
        notes.append(f"update cut short: {update.cut_short}; the passes before it have changed the weights")
    return tuple(notes)
