"""What a draft asks for, in numbers."""

from __future__ import annotations

from strop.api.services import Services
from strop.api.strop.datasets import get_dataset
from strop.config import RewardConfig
from strop.web.wizard.draft import JobDraft
from strop.web.wizard.estimate import Pace, Work
from strop.web.wizard.parameters import value_of

_WORKERS = RewardConfig.model_fields["workers"].default


def work_of(draft: JobDraft, services: Services) -> Work:
    """What a job has to do. NotFound for a data set that is gone, ValueError for values that cannot be."""
    values = draft.values
    batch, samples, epochs = (
        int(value_of(values, key)) for key in ("train.batch_size", "train.samples_per_prompt", "train.epochs")
    )
    if min(batch, samples, epochs) < 1:
        raise ValueError("at least 1 of each")
    most, every = value_of(values, "train.max_steps"), values.get("train.eval_every")
    held_out = get_dataset(draft.validation, services).rows or 0 if draft.validation else 0
    return Work(
        rows=get_dataset(draft.train, services).rows or 0,
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
