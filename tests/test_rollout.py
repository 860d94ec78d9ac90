"""Groups: played, scored, in order, with seeds of their own."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch

from models import TEMPLATE, save_tiny_model
from strop.envs.single_turn import SingleTurn
from strop.errors import ModelError
from strop.policy.chat import ChatTemplate
from strop.policy.engine import Engine
from strop.policy.model import load_policy
from strop.policy.sampler import LocalSampler
from strop.rollout import run_group, run_groups
from strop.types import Failure, Group, Message, Reward, Rollout, Row, SamplingParams, Step, StopReason

PARAMS = SamplingParams(temperature=1.0, max_tokens=8, seed=3)


def row(name: str) -> Row:
    return Row(name, 1, (Message("user", f"What about {name}?"),), (), None, {})


def rollout(index: int, text: str) -> Rollout:
    return Rollout(index, (Message("assistant", text),), (Step(text),), (1,), (True,), (-0.1,), 0.5, StopReason.STOP)


class Playing:
    """An `Environment` whose answers take as long as told, and tell the seed."""

    def __init__(self, delays: Sequence[int] = ()) -> None:
        self.seeds: dict[str, int] = {}
        self._delays = dict(enumerate(delays))

    async def play(self, row: Row, count: int, params: SamplingParams) -> Group:
        self.seeds[row.id] = params.seed
        for _ in range(self._delays.get(len(self.seeds) - 1, 0)):
            await asyncio.sleep(0)
        return Group(row, (5, 6), tuple(rollout(index, f"{row.id}-{index}") for index in range(count)))


class Scoring:
    """A scorer that gives the index as reward, and remembers what it was asked."""

    def __init__(self, fails: Callable[[Rollout], bool] = lambda rollout: False) -> None:
        self.asked: list[tuple[str, int, int]] = []
        self._fails = fails

    async def score(self, row: Row, rollout: Rollout, seed: int) -> Rollout:
        self.asked.append((row.id, rollout.index, seed))
        for _ in range(5 - rollout.index):  # later rollouts are done first
            await asyncio.sleep(0)
        if self._fails(rollout):
            return dataclasses.replace(rollout, failure=Failure("timeout", "took too long"))
        return dataclasses.replace(rollout, reward=Reward(float(rollout.index), {}, {}))


def test_every_rollout_is_scored_and_stays_in_its_place() -> None:
    scorer = Scoring()
    group = asyncio.run(run_group(row("a"), 3, PARAMS, Playing(), scorer))
    assert group.rewards_G == [0.0, 1.0, 2.0]
    assert [r.messages[0].content for r in group.rollouts] == ["a-0", "a-1", "a-2"]
    assert group.prompt_ids_T == (5, 6)
    assert sorted((name, index) for name, index, _ in scorer.asked) == [("a", 0), ("a", 1), ("a", 2)]


def test_a_rollout_that_failed_while_it_was_played_is_not_scored() -> None:
    class HalfDown(Playing):
        async def play(self, row: Row, count: int, params: SamplingParams) -> Group:
            group = await super().play(row, count, params)
            failed = dataclasses.replace(group.rollouts[1], failure=Failure("connection", "no answer"))
            return dataclasses.replace(group, rollouts=(group.rollouts[0], failed))

    scorer = Scoring()
    group = asyncio.run(run_group(row("a"), 2, PARAMS, HalfDown(), scorer))
    assert [index for _, index, _ in scorer.asked] == [0]
    assert group.failure == Failure("connection", "no answer")
    assert group.rollouts[1].reward is None


def test_rollouts_of_a_group_are_scored_at_the_same_time() -> None:
    running = most = 0

    class Slow(Scoring):
        async def score(self, row: Row, rollout: Rollout, seed: int) -> Rollout:
            nonlocal running, most
            running += 1
            most = max(most, running)
            scored = await super().score(row, rollout, seed)
            running -= 1
            return scored

    asyncio.run(run_group(row("a"), 4, PARAMS, Playing(), Slow()))
    assert most == 4


def test_a_failure_stays_on_its_rollout_and_marks_the_group() -> None:
    group = asyncio.run(run_group(row("a"), 3, PARAMS, Playing(), Scoring(lambda r: r.index == 1)))
    assert [r.failure is not None for r in group.rollouts] == [False, True, False]
    assert group.failure is not None and group.failure.cause == "timeout"
    assert group.rollouts[1].reward is None


def seeds(run_seed: int, name: str) -> tuple[int, list[int]]:
    """Seeds of the sampler and of each rollout's scoring."""
    environment, scorer = Playing(), Scoring()
    asyncio.run(run_group(row(name), 3, dataclasses.replace(PARAMS, seed=run_seed), environment, scorer))
    return environment.seeds[name], [seed for _, _, seed in sorted(scorer.asked)]


def test_seeds_depend_on_the_run_the_row_and_the_rollout_only() -> None:
    assert seeds(3, "a") == seeds(3, "a")
    sampling = {seeds(run, name)[0] for run in (3, 4) for name in ("a", "b")}
    scoring = {seed for run in (3, 4) for name in ("a", "b") for seed in seeds(run, name)[1]}
    assert len(sampling) == 4
    assert len(scoring) == 12
    assert 3 not in sampling


def test_groups_come_in_the_order_of_their_rows_and_are_heard_of_as_they_end() -> None:
    heard: list[str] = []
    groups = asyncio.run(
        run_groups(
            [row(name) for name in "abc"],
            2,
            PARAMS,
            Playing(delays=(30, 0, 15)),
            Scoring(),
            lambda group: heard.append(group.row.id),
        )
    )
    assert [group.row.id for group in groups] == ["a", "b", "c"]
    assert heard == ["b", "c", "a"]


def test_a_rows_seed_does_not_depend_on_the_rows_beside_it() -> None:
    alone, together = Playing(), Playing()
    asyncio.run(run_groups([row("b")], 2, PARAMS, alone, Scoring()))
    asyncio.run(run_groups([row(name) for name in "abc"], 2, PARAMS, together, Scoring()))
    assert together.seeds["b"] == alone.seeds["b"]
    assert len(set(together.seeds.values())) == 3


def test_groups_that_are_heard_of_are_scored() -> None:
    heard: list[Group] = []
    asyncio.run(run_groups([row("a")], 2, PARAMS, Playing(), Scoring(), heard.append))
    assert heard[0].rewards_G == [0.0, 1.0]


def test_no_rows_give_no_groups() -> None:
    assert asyncio.run(run_groups([], 2, PARAMS, Playing(), Scoring())) == []


def test_an_error_of_the_environment_comes_through() -> None:
    class Broken(Playing):
        async def play(self, row: Row, count: int, params: SamplingParams) -> Group:
            raise ModelError("the model is gone")

    with pytest.raises(ModelError, match="the model is gone"):
        asyncio.run(run_groups([row("a"), row("b")], 2, PARAMS, Broken(), Scoring()))


def test_a_real_sampler_gives_a_row_the_same_answers_whatever_rows_are_beside_it(tmp_path: Path) -> None:
    folder = save_tiny_model("llama", tmp_path)
    policy = load_policy(str(folder), "tiny", torch.device("cpu"), torch.float32)
    assert policy.tokenizer.chat_template == TEMPLATE
    chat = ChatTemplate(policy.tokenizer, "tiny", {})

    def answers(names: str, max_concurrent: int) -> dict[str, list[tuple[int, ...]]]:
        environment = SingleTurn(chat, LocalSampler(Engine(policy, max_concurrent)))
        groups = asyncio.run(run_groups([row(name) for name in names], 2, PARAMS, environment, Scoring()))
        return {group.row.id: [r.token_ids_T for r in group.rollouts] for group in groups}

    together = answers("abcd", 8)
    assert answers("dcba", 3) == together
    assert answers("c", 2) == {"c": together["c"]}
    assert len({ids for group in together.values() for ids in group}) == 8
