"""How long a job will take and how much memory it needs, as far as a test on a few rows can tell."""

from __future__ import annotations

import math
from dataclasses import dataclass

from strop.config import RewardConfig
from strop.services import datasets
from strop.services.container import Services
from strop.services.drafts.draft import JobDraft
from strop.services.drafts.parameters import value_of
from strop.services.job_order import usual_interval
from strop.services.threads import in_thread

# Measured on two CPU cores with the example job: the update takes so many times what sampling
# the same answers takes. A GPU with a sampler of its own is nearer to the lower end.
TRAINING_SHARE = 1.0
_WORKERS = RewardConfig.model_fields["workers"].default


@dataclass(frozen=True)
class Work:
    """What a job has to do."""

    rows: int
    """To train on, dropped ones left out."""
    batch_size: int
    samples: int
    epochs: int
    max_steps: int | None = None
    validation_rows: int = 0
    eval_every: int | None = None
    """Steps; None for the server's own choice."""
    eval_samples: int = 1
    workers: int = 2

    @property
    def steps(self) -> int:
        """Of the whole run."""
        steps = math.ceil(self.rows / self.batch_size) * self.epochs
        return min(steps, self.max_steps or steps)

    @property
    def answers(self) -> int:
        """That are sampled and trained on, in all."""
        return min(self.steps * self.batch_size, self.rows * self.epochs) * self.samples

    @property
    def validations(self) -> int:
        """How often the held-out rows are answered: before the first step, between, and at the end."""
        if not self.validation_rows or self.eval_every == 0:
            return 0
        every = self.eval_every or usual_interval(self.steps)
        return 1 + math.ceil(self.steps / every)


@dataclass(frozen=True)
class Pace:
    """What a test has measured."""

    tokens: float
    """Of an answer, in the mean."""
    tokens_per_second: float
    """Of all answers that are sampled at the same time."""
    reward_seconds: float
    """For scoring the mean answer."""


@dataclass(frozen=True)
class Estimate:
    """Seconds of a whole job."""

    sampling: float
    rewards: float
    training: float
    validation: float

    @property
    def total(self) -> float:
        """All of it."""
        return self.sampling + self.rewards + self.training + self.validation


def estimate(work: Work, pace: Pace) -> Estimate:
    """What the work takes at a pace. Rewards are scored while other answers are sampled: what
    counts is the part that takes longer."""
    sampling = work.answers * pace.tokens / pace.tokens_per_second
    rewards = work.answers * pace.reward_seconds / work.workers
    answers = work.validations * work.validation_rows * work.eval_samples
    checked = max(answers * pace.tokens / pace.tokens_per_second, answers * pace.reward_seconds / work.workers)
    return Estimate(sampling, max(rewards - sampling, 0.0), TRAINING_SHARE * sampling, checked)


@in_thread
def work_of(services: Services, draft: JobDraft) -> Work:
    """What a job has to do; blocks. NotFound for a data set that is gone, ValueError for values that cannot be."""
    values = draft.values
    batch, samples, epochs = (
        int(value_of(values, key)) for key in ("train.batch_size", "train.samples_per_prompt", "train.epochs")
    )
    if min(batch, samples, epochs) < 1:
        raise ValueError("at least 1 of each")
    most, every = value_of(values, "train.max_steps"), values.get("train.eval_every")
    held_out = datasets.get.blocking(services, draft.validation).rows or 0 if draft.validation else 0
    return Work(
        rows=datasets.get.blocking(services, draft.train).rows or 0,
        batch_size=batch,
        samples=samples,
        epochs=epochs,
        max_steps=None if most is None else int(most),
        validation_rows=held_out,
        eval_every=None if every is None else int(every),
        eval_samples=int(value_of(values, "eval.samples")),
        workers=min((part.limits.get("workers", _WORKERS) for part in draft.rewards), default=_WORKERS),
    )


def pace_of(draft: JobDraft) -> Pace | None:
    """What the draft's test has measured; None without one, or where it was of something else."""
    trial = draft.trial
    if trial is None or not trial.answers or not trial.tokens or trial.of != draft.tested:
        return None
    seconds = [answer.seconds for row in trial.rows for answer in row.answers]
    return Pace(
        tokens=trial.tokens / trial.answers,
        tokens_per_second=trial.tokens / max(trial.seconds, 0.001),
        reward_seconds=sum(seconds) / max(len(seconds), 1),
    )
