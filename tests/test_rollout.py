"""Groups: played, scored, in order, with seeds of their own."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch

from fake_completers import FakeCompleter, single_turn, turn
from models import TEMPLATE, save_tiny_model
from strop.envs.single_turn import SingleTurn
from strop.errors import ContextOverflow, ModelError
from strop.policy.chat import ChatTemplate
from strop.policy.completer import LocalCompleter
from strop.policy.engine import Engine
from strop.policy.model import load_policy
from strop.policy.sampler import LocalSampler
from strop.rollout import Player, run_episodes, run_group, run_groups
from strop.types import (
    Context,
    Failure,
    Group,
    Message,
    Reward,
    Rollout,
    Row,
    SamplingParams,
    Segment,
    StopReason,
    Turn,
    segments_of,
)

PARAMS = SamplingParams(temperature=1.0, max_tokens=8, seed=3)


def row(name: str) -> Row:
    return Row(name, 1, (Message("user", f"What about {name}?"),), (), None, {})


class Named(FakeCompleter):
    """Answers with the row and the index, after a pause that differs by call; remembers seeds by row."""

    def __init__(self, delays: Sequence[int] = ()) -> None:
        super().__init__(lambda context, index: f"{name_of(context)}-{index}")
        self._delays = dict(enumerate(delays))

    @property
    def seeds(self) -> dict[str, int]:
        return {name_of(context): params.seed for context, _, params in self.asked}

    async def complete(self, context: Context, count: int, params: SamplingParams) -> Sequence[Turn | Failure]:
        found = await super().complete(context, count, params)
        for _ in range(self._delays.get(len(self.asked) - 1, 0)):
            await asyncio.sleep(0)
        return found


def name_of(context: Context) -> str:
    """`a` of `What about a?`."""
    return context.messages[0].content.removeprefix("What about ").removesuffix("?")


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
    group = asyncio.run(run_group(row("a"), 3, PARAMS, single_turn(Named()), scorer))
    assert group.rewards_G == [0.0, 1.0, 2.0]
    assert [r.messages[0].content for r in group.rollouts] == ["a-0", "a-1", "a-2"]
    assert [r.segments[0].prompt_ids_T for r in group.rollouts] == [(1, 2, 3)] * 3
    assert sorted((name, index) for name, index, _ in scorer.asked) == [("a", 0), ("a", 1), ("a", 2)]


def test_a_rollout_that_failed_while_it_was_played_is_not_scored() -> None:
    failure = Failure("connection", "no answer")
    half_down = FakeCompleter(lambda context, index: failure if index else "yes")
    scorer = Scoring()
    group = asyncio.run(run_group(row("a"), 2, PARAMS, single_turn(half_down), scorer))
    assert [index for _, index, _ in scorer.asked] == [0]
    assert group.failure == failure
    assert group.rollouts[1].reward is None
    assert not group.rollouts[1].answered


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

    asyncio.run(run_group(row("a"), 4, PARAMS, single_turn(Named()), Slow()))
    assert most == 4


def test_a_failure_stays_on_its_rollout_and_marks_the_group() -> None:
    group = asyncio.run(run_group(row("a"), 3, PARAMS, single_turn(Named()), Scoring(lambda r: r.index == 1)))
    assert [r.failure is not None for r in group.rollouts] == [False, True, False]
    assert group.failure is not None and group.failure.cause == "timeout"
    assert group.rollouts[1].reward is None


def seeds(run_seed: int, name: str) -> tuple[int, list[int]]:
    """Seeds of the sampler and of each rollout's scoring."""
    completer, scorer = Named(), Scoring()
    params = dataclasses.replace(PARAMS, seed=run_seed)
    asyncio.run(run_group(row(name), 3, params, single_turn(completer), scorer))
    return completer.seeds[name], [seed for _, _, seed in sorted(scorer.asked)]


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
            single_turn(Named(delays=(30, 0, 15))),
            Scoring(),
            lambda group: heard.append(group.row.id),
        )
    )
    assert [group.row.id for group in groups] == ["a", "b", "c"]
    assert heard == ["b", "c", "a"]


def test_a_rows_seed_does_not_depend_on_the_rows_beside_it() -> None:
    alone, together = Named(), Named()
    asyncio.run(run_groups([row("b")], 2, PARAMS, single_turn(alone), Scoring()))
    asyncio.run(run_groups([row(name) for name in "abc"], 2, PARAMS, single_turn(together), Scoring()))
    assert together.seeds["b"] == alone.seeds["b"]
    assert len(set(together.seeds.values())) == 3


def test_groups_that_are_heard_of_are_scored() -> None:
    heard: list[Group] = []
    asyncio.run(run_groups([row("a")], 2, PARAMS, single_turn(Named()), Scoring(), heard.append))
    assert heard[0].rewards_G == [0.0, 1.0]


def test_no_rows_give_no_groups() -> None:
    assert asyncio.run(run_groups([], 2, PARAMS, single_turn(Named()), Scoring())) == []


def test_an_error_that_no_row_would_get_past_comes_through() -> None:
    def refuse(context: Context, index: int) -> str:
        raise ModelError("the model is gone")

    with pytest.raises(ModelError, match="the model is gone"):
        asyncio.run(run_groups([row("a"), row("b")], 2, PARAMS, single_turn(FakeCompleter(refuse)), Scoring()))


def test_a_real_sampler_gives_a_row_the_same_answers_whatever_rows_are_beside_it(tmp_path: Path) -> None:
    folder = save_tiny_model("llama", tmp_path)
    policy = load_policy(str(folder), "tiny", torch.device("cpu"), torch.float32)
    assert policy.tokenizer.chat_template == TEMPLATE
    chat = ChatTemplate(policy.tokenizer, "tiny", {})

    def answers(names: str, max_concurrent: int) -> dict[str, list[tuple[int, ...]]]:
        completer = LocalCompleter(policy, chat, LocalSampler(Engine(policy, max_concurrent)))
        player = Player(completer, SingleTurn())
        groups = asyncio.run(run_groups([row(name) for name in names], 2, PARAMS, player, Scoring()))
        return {group.row.id: [r.segments[0].token_ids_T for r in group.rollouts] for group in groups}

    together = answers("abcd", 8)
    assert answers("dcba", 3) == together
    assert answers("c", 2) == {"c": together["c"]}
    assert len({ids for group in together.values() for ids in group}) == 8


class Echo:
    """An `Environment` whose user repeats the answer, `turns` times, and which counts its episodes."""

    def __init__(self, turns: int) -> None:
        self.turns, self.open, self.seeds = turns, 0, list[int]()

    async def start(self, row: Row, seed: int) -> EchoEpisode:
        self.open += 1
        self.seeds.append(seed)
        return EchoEpisode(self, row)


class EchoEpisode:
    def __init__(self, echo: Echo, row: Row) -> None:
        self.opening = Context(row.messages)
        self._echo, self._left = echo, echo.turns

    async def step(self, turn: Turn) -> tuple[Message, ...] | None:
        self._left -= 1
        return (Message("user", f"you said {turn.message.content}"),) if self._left else None

    async def close(self) -> None:
        self._echo.open -= 1


def played(completer: FakeCompleter, echo: Echo, count: int = 2, max_turns: int = 8, **more: bool) -> list[Rollout]:
    player = Player(completer, echo, max_turns, **more)
    return asyncio.run(run_episodes(row("a"), count, PARAMS, player))


def test_a_group_asks_once_for_its_first_turns_and_then_each_rollout_for_itself() -> None:
    completer = FakeCompleter()
    played(completer, Echo(3), count=4)
    assert [count for _, count, _ in completer.asked] == [4, *[1] * 8]


def test_an_environment_answers_each_turn_until_the_episode_is_over() -> None:
    rollout = played(FakeCompleter(), Echo(3))[1]
    assert [message.content for message in rollout.messages] == [
        "answer 1",
        "you said answer 1",
        "answer 0",
        "you said answer 0",
        "answer 0",
    ]
    assert (len(rollout.turns), rollout.stop_reason) == (3, StopReason.STOP)


def test_a_later_turn_sees_the_whole_conversation_and_its_ids() -> None:
    completer = FakeCompleter(lambda context, index: turn("hi", (7, 8), (1, 2) if len(context.messages) == 1 else (9,)))
    played(completer, Echo(3), count=1)
    contexts = [context for context, _, _ in completer.asked]
    assert [context.ids_T for context in contexts] == [(), (1, 2, 7, 8), (1, 2, 7, 8, 9, 7, 8)]
    assert [message.content for message in contexts[1].messages] == ["What about a?", "hi", "you said hi"]


def test_turns_of_attempts_have_seeds_of_their_own_and_episodes_share_one() -> None:
    completer, echo = FakeCompleter(), Echo(3)
    played(completer, echo, count=3)
    later = [params.seed for _, count, params in completer.asked if count == 1]
    assert len(set(later)) == 6
    assert set(echo.seeds) == {PARAMS.seed}


def test_the_limit_on_turns_ends_a_rollout() -> None:
    rollouts = played(FakeCompleter(), Echo(5), max_turns=2)
    assert {(len(r.turns), r.stop_reason) for r in rollouts} == {(2, StopReason.MAX_TURNS)}


def test_a_turn_that_was_cut_off_ends_its_rollout_unless_a_person_goes_on() -> None:
    cut = FakeCompleter(lambda context, index: turn("hm", stop_reason=StopReason.LENGTH))
    assert {(len(r.turns), r.stop_reason) for r in played(cut, Echo(3))} == {(1, StopReason.LENGTH)}
    assert {len(r.turns) for r in played(cut, Echo(3), ends_at_length=False)} == {3}


def test_a_conversation_that_is_too_long_ends_its_rollout_and_keeps_its_turns() -> None:
    def say(context: Context, index: int) -> str:
        if len(context.messages) > 1:
            raise ContextOverflow("600 tokens, 512 positions")
        return "yes"

    rollouts = played(FakeCompleter(say), Echo(3))
    assert {(len(r.turns), r.stop_reason, r.failure) for r in rollouts} == {(1, StopReason.CONTEXT, None)}


def test_a_prompt_that_is_too_long_is_a_failure() -> None:
    def say(context: Context, index: int) -> str:
        raise ContextOverflow("600 tokens, 512 positions")

    failed = played(FakeCompleter(say), Echo(3))[0].failure
    assert failed == Failure("context", "600 tokens, 512 positions")


def test_a_failure_in_a_later_turn_fails_the_rollout_and_keeps_what_was_said() -> None:
    down = Failure("connection", "no answer")
    (rollout,) = played(FakeCompleter(lambda context, index: down if len(context.messages) > 1 else "yes"), Echo(3), 1)
    assert rollout.failure == down
    assert [made.message.content for made in rollout.turns] == ["yes"]


def test_every_episode_is_closed_also_after_an_error() -> None:
    def refuse(context: Context, index: int) -> str:
        raise ModelError("the model is gone")

    echo = Echo(3)
    with pytest.raises(ModelError):
        played(FakeCompleter(refuse), echo)
    assert echo.open == 0


def test_turns_that_extend_each_other_are_one_segment() -> None:
    turns = (turn("a", (7, 8), (1, 2)), turn("b", (5,), (9, 9)))
    assert segments_of(turns) == (
        Segment((1, 2), (7, 8, 9, 9, 5), (True, True, False, False, True), (-0.5, -0.5, 0.0, 0.0, -0.5)),
    )


def test_a_prompt_that_rewrites_history_starts_another_segment() -> None:
    turns = (turn("a", (7, 8), (1, 2)), turn("b", (5,), (1, 3, 4), new_segment=True))
    assert [(s.prompt_ids_T, s.token_ids_T) for s in segments_of(turns)] == [((1, 2), (7, 8)), ((1, 3, 4), (5,))]


def test_turns_of_which_only_the_text_is_known_have_no_segments() -> None:
    assert segments_of((Turn(Message("assistant", "a"), StopReason.STOP, 4),)) == ()
