"""The default environment: one answer a rollout."""

from __future__ import annotations

import asyncio

from fake_completers import FakeCompleter, single_turn
from strop.rollout import run_episodes
from strop.types import Context, Message, Row, SamplingParams

TOOLS = ({"type": "function", "function": {"name": "search"}},)
ROW = Row("row-1", 4, (Message("user", "Say something."),), TOOLS, None, {})
PARAMS = SamplingParams(temperature=1.0, max_tokens=8, seed=3)


def test_the_prompt_is_the_rows_messages_and_tools() -> None:
    completer = FakeCompleter()
    asyncio.run(run_episodes(ROW, 2, PARAMS, single_turn(completer)))
    assert completer.asked == [(Context(ROW.messages, TOOLS, where="line 4"), 2, PARAMS)]


def test_a_rollout_is_one_assistant_turn_neither_scored_nor_failed() -> None:
    first, second = asyncio.run(run_episodes(ROW, 2, PARAMS, single_turn(FakeCompleter())))
    assert (first.index, second.index) == (0, 1)
    assert [first.messages, second.messages] == [
        (Message("assistant", "answer 0"),),
        (Message("assistant", "answer 1"),),
    ]
    assert (first.reward, first.failure, first.timing) == (None, None, {"sample": 0.25})
