"""Evaluate a model on held-out rows with the reward functions of a configuration."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from strop.config import RunConfig
from strop.data.rows import load_rows
from strop.envs.single_turn import SingleTurn
from strop.errors import DataError, TooManyFailures
from strop.evals.run import Evaluation, evaluate
from strop.policy.chat import ChatTemplate
from strop.policy.sampler import Engine, LocalSampler
from strop.rewards.scorer import Scorer
from strop.types import Group, Row
from strop.worker.data import fitting
from strop.worker.models import load_model


class Display(Protocol):
    """Hears how an evaluation goes on."""

    def say(self, line: str) -> None:
        """Take a line about what takes long."""

    def start(self, label: str, rows: int) -> None:
        """Take the next model's label and its number of rows."""

    def group(self, group: Group) -> None:
        """Take a row's answers, once they are scored."""


def evaluate_models(
    models: Sequence[str], data: Path, config: RunConfig, limit: int | None, display: Display
) -> dict[str, Evaluation]:
    """Evaluations by label, all on the same rows with the same chance.

    Raises StropError where a model, the data or a reward cannot be used, and TooManyFailures
    when more groups could not be scored than `train.max_failed_groups` allows.
    """
    rows = load_rows(data)[:limit]
    return asyncio.run(_evaluate_all(models, data, rows, config, display))


async def _evaluate_all(
    models: Sequence[str], data: Path, rows: Sequence[Row], config: RunConfig, display: Display
) -> dict[str, Evaluation]:
    evaluations: dict[str, Evaluation] = {}
    async with Scorer.from_config(config.rewards) as scorer:
        for model in models:
            label, evaluation = await _evaluate_one(model, data, rows, config, scorer, display)
            evaluations[label] = evaluation
    return evaluations


async def _evaluate_one(
    model: str, data: Path, rows: Sequence[Row], config: RunConfig, scorer: Scorer, display: Display
) -> tuple[str, Evaluation]:
    policy, found = load_model(model, config.device, display.say)
    chat = ChatTemplate(policy.tokenizer, policy.name, config.sampling.template)
    kept, dropped = fitting(rows, str(data), chat, config.sampling.max_prompt_tokens)
    if dropped:
        display.say(f"{dropped} prompts are longer than {config.sampling.max_prompt_tokens} tokens: dropped")
    if not kept:
        raise DataError(f"{data}: no prompt fits into sampling.max_prompt_tokens = {config.sampling.max_prompt_tokens}")
    display.start(found.label, len(kept))
    environment = SingleTurn(chat, LocalSampler(Engine(policy, config.sampling.max_concurrent)))
    evaluation = await evaluate(kept, config, environment, scorer, display.group)
    _refuse_failures(evaluation.groups, config.train.max_failed_groups)
    return found.label, evaluation


def _refuse_failures(groups: Sequence[Group], allowed: float) -> None:
    """Figures over the rows that happened to work would mislead."""
    failures = [group.failure for group in groups if group.failure]
    if len(failures) > allowed * len(groups):
        raise TooManyFailures(
            f"{len(failures)} of {len(groups)} rows could not be scored; the first: {failures[0].message}\n"
            f"{failures[0].detail}".rstrip()
        )
