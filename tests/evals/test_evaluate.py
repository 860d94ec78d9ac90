"""Evaluation plays held-out rows with settings of its own and changes nothing."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from train_cases import config, row

from fake_completers import FakeCompleter, single_turn
from models import tiny_policy
from strop.config import EvalConfig, RunConfig
from strop.envs.single_turn import SingleTurn
from strop.evals.run import Evaluation, evaluate, validation_metrics
from strop.policy.chat import ChatTemplate
from strop.policy.completer import LocalCompleter
from strop.policy.engine import Engine
from strop.policy.sampler import LocalSampler
from strop.rollout import Player
from strop.types import Failure, Group, Reward, Rollout, Row


class ByIndex:
    """Scores the first sample of a group 1 and the others 0; row 3 cannot be scored."""

    async def score(self, row: Row, rollout: Rollout, seed: int) -> Rollout:
        if row.id == "row-3":
            return dataclasses.replace(rollout, failure=Failure("timeout", "no answer"))
        value = float(rollout.index == 0)
        return dataclasses.replace(rollout, reward=Reward(value, {"score": value}, {"score": 1.0}))


def settings(**evaluation: Any) -> RunConfig:
    base = config({"temperature": 1.3, "stop": ["END"], "max_completion_tokens": 11})
    return base.model_copy(update={"eval": EvalConfig(**evaluation)})


def evaluated(completer: FakeCompleter, made: RunConfig, rows: int = 2, **more: Any) -> Evaluation:
    asked = [row(number) for number in range(1, rows + 1)]
    return asyncio.run(evaluate(asked, made, single_turn(completer), ByIndex(), **more))


def test_samples_and_temperature_are_those_of_eval_and_not_of_training() -> None:
    played = FakeCompleter()
    evaluated(played, settings(samples=4, temperature=0.6))
    assert [(context.where, count) for context, count, _ in played.asked] == [("line 1", 4), ("line 2", 4)]
    assert {params.temperature for _, _, params in played.asked} == {0.6}
    assert {(params.max_tokens, params.stop) for _, _, params in played.asked} == {(11, ("END",))}


def test_by_default_one_greedy_answer_is_taken() -> None:
    played = FakeCompleter()
    evaluated(played, settings())
    assert {(count, params.temperature) for _, count, params in played.asked} == {(1, 0.0)}


def test_metrics_are_those_of_training_with_pass_at_k() -> None:
    found = evaluated(FakeCompleter(), settings(samples=2, temperature=1.0, pass_threshold=0.5))
    assert found.metrics["reward"] == 0.5
    assert found.metrics["max_reward"] == 1.0
    assert found.metrics["reward/score"] == 0.5
    assert (found.metrics["pass@1"], found.metrics["pass@2"]) == (0.5, 1.0)


@pytest.mark.parametrize(("allowed", "has_reward"), [(0.25, False), (0.34, True)])
def test_a_validation_that_mostly_failed_has_no_reward(allowed: float, has_reward: bool) -> None:
    base = settings()
    made = base.model_copy(update={"train": base.train.model_copy(update={"max_failed_groups": allowed})})
    found = validation_metrics(evaluated(FakeCompleter(), made, rows=3).groups, made)
    assert ("reward" in found, "pass@1" in found) == (has_reward, has_reward)
    assert (found["rollouts_errored"], found["failures/timeout"]) == (1, 1)


def test_rows_that_cannot_be_scored_are_counted_and_in_no_mean() -> None:
    found = evaluated(FakeCompleter(), settings(), rows=3)
    assert found.metrics["reward"] == 1.0
    assert found.metrics["failures/timeout"] == 1
    assert [group.failure is not None for group in found.groups] == [False, False, True]


def test_groups_come_back_in_the_order_of_the_rows_and_are_told_as_they_are_done() -> None:
    told: list[Group] = []
    found = evaluated(FakeCompleter(), settings(), rows=3, on_group=told.append)
    assert [group.row.id for group in found.groups] == ["row-1", "row-2", "row-3"]
    assert sorted(group.row.id for group in told) == ["row-1", "row-2", "row-3"]


def test_two_evaluations_meet_the_same_chance_and_rows_another_each() -> None:
    first, second = FakeCompleter(), FakeCompleter()
    for played in (first, second):
        evaluated(played, settings(samples=2, temperature=1.0))
    assert first.asked == second.asked
    assert len({params.seed for _, _, params in first.asked}) == 2


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_evaluating_changes_no_weight_and_no_random_state(temperature: float, tmp_path: Path) -> None:
    policy = tiny_policy("llama", tmp_path)
    chat = ChatTemplate(policy.tokenizer, "tiny", {})
    player = Player(LocalCompleter(policy, chat, LocalSampler(Engine(policy, max_concurrent=4))), SingleTurn())
    made = settings(samples=1 if temperature == 0 else 2, temperature=temperature)
    before = {name: weight.clone() for name, weight in policy.model.named_parameters()}
    state = torch.get_rng_state()
    rows = [row(number) for number in range(3)]
    found = [asyncio.run(evaluate(rows, made, player, ByIndex())) for _ in range(2)]
    assert answers(found[0]) == answers(found[1])
    assert torch.equal(torch.get_rng_state(), state)
    for name, weight in policy.model.named_parameters():
        assert torch.equal(weight, before[name])
        assert weight.grad is None


def answers(evaluation: Evaluation) -> list[tuple[int, ...]]:
    return [rollout.segments[0].token_ids_T for group in evaluation.groups for rollout in group.rollouts]
