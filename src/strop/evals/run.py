"""Run episodes for held-out rows and score them. Changes no weights and no training state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from strop.config import RunConfig
from strop.metrics import failure_metrics, group_metrics, pass_metrics
from strop.rollout import Player, RolloutScorer, run_groups
from strop.seeds import derive_seed
from strop.types import Group, Row, SamplingParams


@dataclass(frozen=True)
class Evaluation:
    """Scored rollouts of held-out rows, with metrics."""

    groups: tuple[Group, ...]
    metrics: dict[str, float]
    """Names as in training, plus `pass@k`."""


async def evaluate(
    rows: Sequence[Row],
    config: RunConfig,
    player: Player,
    scorer: RolloutScorer,
    on_group: Callable[[Group], None] = lambda group: None,
) -> Evaluation:
    """Answer every row as `[eval]` says: its samples and temperature, not those of training.

    The seed is the run's, so that two models, or one model at two steps, use the same random numbers.
    """
    params = SamplingParams(
        temperature=config.eval.temperature,
        max_tokens=config.sampling.max_completion_tokens,
        stop=config.sampling.stop,
        seed=derive_seed(config.seed, "eval"),
    )
    groups = await run_groups(rows, config.eval.samples, params, player, scorer, on_group)
    return Evaluation(tuple(groups), measure(groups, config.eval.pass_threshold))


def validation_metrics(groups: Sequence[Group], config: RunConfig) -> dict[str, float]:
    """The metrics of a validation.

    Where more groups could not be scored than `train.max_failed_groups` allows, only the counts of
    failures: a mean over the rows that happened to work could make a poor checkpoint the best.
    """
    failed = sum(group.failure is not None for group in groups)
    if failed > config.train.max_failed_groups * len(groups):
        return failure_metrics(groups)
    return measure(groups, config.eval.pass_threshold)


def measure(groups: Sequence[Group], pass_threshold: float) -> dict[str, float]:
    """The metrics of evaluated groups."""
    return {**group_metrics(groups), **pass_metrics(groups, pass_threshold)}
