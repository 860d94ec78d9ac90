"""The single-turn environment: one answer a rollout."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strop.envs.single_turn import SingleTurn, cut_at_stop
from strop.types import Completion, Group, Message, Row, SamplingParams, Step, StopReason

ROW = Row("row-1", 1, (Message("user", "Say something."),), (), None, {})
PARAMS = SamplingParams(temperature=1.0, max_tokens=8, seed=3)


class Letters:
    """A `Chat` in which each id is a letter; ids below 10 are special."""

    def prompt_ids(self, row: Row) -> tuple[int, ...]:
        return tuple(ord(letter) for letter in row.messages[-1].content)

    def text(self, token_ids: Sequence[int]) -> str:
        return "".join(chr(i) for i in token_ids if i >= 10)


class Scripted:
    """A `Sampler` that says what it was told to, and remembers how it was asked."""

    def __init__(self, *texts: str, reason: StopReason = StopReason.STOP) -> None:
        self.asked: list[tuple[Sequence[int], int, SamplingParams]] = []
        self._texts = texts
        self._reason = reason

    async def sample(self, prompt_ids: Sequence[int], count: int, params: SamplingParams) -> list[Completion]:
        self.asked.append((prompt_ids, count, params))
        await asyncio.sleep(0.01)
        return [self._completion(text) for text in self._texts]

    def _completion(self, text: str) -> Completion:
        ids = (*(ord(letter) for letter in text), 2)
        logprobs, entropies = (-0.5,) * len(ids), tuple(float(place) for place in range(len(ids)))
        return Completion(ids, logprobs, entropies, self._reason)


def play(sampler: Scripted, params: SamplingParams = PARAMS, count: int = 2) -> Group:
    return asyncio.run(SingleTurn(Letters(), sampler).play(ROW, count, params))


def test_the_sampler_is_asked_once_for_all_rollouts_of_a_prompt() -> None:
    sampler = Scripted("yes", "no")
    group = play(sampler)
    assert sampler.asked == [(Letters().prompt_ids(ROW), 2, PARAMS)]
    assert group.row is ROW
    assert group.prompt_ids_T == Letters().prompt_ids(ROW)


def test_a_rollout_is_one_assistant_turn() -> None:
    first, second = play(Scripted("yes", "no")).rollouts
    assert (first.index, second.index) == (0, 1)
    assert first.messages == (Message("assistant", "yes"),)
    assert first.steps == (Step("yes"),)
    assert second.messages == (Message("assistant", "no"),)


def test_every_id_was_sampled_and_is_kept_with_its_logprob() -> None:
    (rollout,) = play(Scripted("yes")).rollouts
    assert rollout.token_ids_T == (121, 101, 115, 2)
    assert rollout.sampled_mask_T == (True,) * 4
    assert rollout.sampler_logprobs_T == (-0.5,) * 4
    assert rollout.length == 4


def test_entropy_is_the_mean_over_the_tokens() -> None:
    (rollout,) = play(Scripted("yes")).rollouts
    assert rollout.entropy == pytest.approx(1.5)


@pytest.mark.parametrize("reason", StopReason)
def test_the_reason_for_the_end_is_passed_on(reason: StopReason) -> None:
    (rollout,) = play(Scripted("yes", reason=reason)).rollouts
    assert rollout.stop_reason is reason


def test_rollouts_are_neither_scored_nor_failed_yet() -> None:
    group = play(Scripted("yes", "no"))
    assert all(rollout.reward is None and rollout.failure is None for rollout in group.rollouts)


def test_the_time_that_sampling_took_is_noted() -> None:
    group = play(Scripted("yes", "no"))
    assert all(0.01 <= rollout.timing["sample"] < 5 for rollout in group.rollouts)


def test_text_is_cut_at_a_stop_string_and_ids_are_not() -> None:
    params = SamplingParams(temperature=1.0, max_tokens=8, stop=("END",))
    (rollout,) = play(Scripted("yes END maybe"), params, 1).rollouts
    assert rollout.messages == (Message("assistant", "yes "),)
    assert rollout.steps == (Step("yes "),)
    assert len(rollout.token_ids_T) == rollout.length == len("yes END maybe") + 1


@pytest.mark.parametrize(
    ("text", "stop", "expected"),
    [
        ("one two", (), "one two"),
        ("one two", ("three",), "one two"),
        ("one two one", ("one",), ""),
        ("one two three", ("three", "two"), "one "),
        ("é→ö", ("→",), "é"),
        ("", ("x",), ""),
    ],
)
def test_the_first_stop_string_in_the_text_cuts_it(text: str, stop: tuple[str, ...], expected: str) -> None:
    assert cut_at_stop(text, stop) == expected


@given(text=st.text("ab é", max_size=12), stop=st.lists(st.text("ab é", min_size=1, max_size=3), max_size=3))
def test_what_is_left_is_the_longest_beginning_before_any_stop_string(text: str, stop: list[str]) -> None:
    cut = cut_at_stop(text, stop)
    assert text.startswith(cut)
    assert not any(string in cut for string in stop)
    assert cut == text or any(text[len(cut) :].startswith(string) for string in stop)
