"""A scripted user: messages from the row follow the prompt."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fake_completers import FakeCompleter
from strop.config import EnvironmentConfig
from strop.envs.registry import open_environment
from strop.errors import ConfigError, DataError
from strop.rollout import Player, run_episodes
from strop.types import Message, Rollout, Row, SamplingParams

PARAMS = SamplingParams(temperature=1.0, max_tokens=8, seed=3)


def played(metadata: Any) -> Rollout:
    row = Row("row-1", 4, (Message("user", "Hello."),), (), None, {"metadata": metadata})
    player = Player(FakeCompleter(), open_environment(EnvironmentConfig(name="user_turns")), 8)
    return asyncio.run(run_episodes(row, 1, PARAMS, player))[0]


def test_every_user_turn_of_the_row_is_answered() -> None:
    rollout = played({"user_turns": ["And then?", "Thanks."]})
    assert [message.role for message in rollout.messages] == ["assistant", "user", "assistant", "user", "assistant"]
    assert [turn.observations for turn in rollout.turns] == [
        (Message("user", "And then?"),),
        (Message("user", "Thanks."),),
        (),
    ]


@pytest.mark.parametrize("metadata", [None, {}, {"user_turns": []}])
def test_a_row_without_user_turns_is_one_turn(metadata: Any) -> None:
    assert len(played(metadata).turns) == 1


@pytest.mark.parametrize("turns", ["text", [1], [""], {"a": "b"}])
def test_user_turns_that_are_no_texts_are_refused_with_their_line(turns: Any) -> None:
    with pytest.raises(DataError, match=r"line 4: metadata.user_turns: expected a list of texts"):
        played({"user_turns": turns})


def test_an_unknown_environment_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="no environment 'chess'; expected one of single_turn, user_turns"):
        open_environment(EnvironmentConfig(name="chess"))
