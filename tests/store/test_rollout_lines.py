"""Rollouts as lines of JSON, written and read: training and evaluation alike."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from train_cases import failed_group, group, rollout, row, text_rollout, turns

from strop.metrics import group_metrics, pass_metrics
from strop.store.rollout_lines import group_lines, read_group, read_rollout, rollout_lines, upgraded
from strop.types import Group, Message, Row, StepRecord, StopReason, ToolCall

OLD_LINE = {
    "step": 3,
    "row": "r-1",
    "line": 12,
    "sample": 1,
    "reward": 1.25,
    "components": {"form": 1.25},
    "weights": {"form": 1.0},
    "advantage": 0.5,
    "stop_reason": "length",
    "failure": None,
    "prompt": [{"role": "user", "content": "2 + 2?"}],
    "messages": [{"role": "assistant", "content": "answer"}],
    "prompt_ids": [5, 6],
    "token_ids": [20, 21],
    "sampled_mask": [1, 1],
    "sampler_logprobs": [-0.1, -2.0],
    "length": 2,
    "entropy": 0.3,
    "logs": "",
    "timing": {"sample": 0.25},
}
"""As version 0.1 wrote it."""


def there_and_back(played: Group) -> Group:
    return read_group(played.row, json.loads(json.dumps(group_lines(played))))


def test_a_line_is_complete_in_itself() -> None:
    asked = Row("r-1", 12, (Message("system", "Be brief."), Message("user", "2 + 2?")), (), "4", {})
    played = rollout(
        (20, 21),
        reward={"form": 1.0, "fact": 0.25},
        logprobs=(-0.12345678, -2.0),
        entropy=0.30000001,
        stop_reason=StopReason.LENGTH,
    )
    (line,) = rollout_lines(StepRecord(3, {}, (Group(asked, (played,)),), ((0.5,),)))
    assert json.loads(json.dumps(line)) == {
        "step": 3,
        "row": "r-1",
        "line": 12,
        "sample": 0,
        "reward": 1.25,
        "components": {"form": 1.0, "fact": 0.25},
        "weights": {"form": 1.0, "fact": 1.0},
        "advantage": 0.5,
        "stop_reason": "length",
        "failure": None,
        "prompt": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2 + 2?"}],
        "turns": [
            {
                "message": {"role": "assistant", "content": "answer"},
                "observations": [],
                "stop_reason": "length",
                "length": 2,
                "entropy": 0.3,
                "version": None,
                "seconds": 0.25,
                "input_ids": [1, 2, 3],
                "token_ids": [20, 21],
                "logprobs": [-0.123457, -2.0],
                "new_segment": False,
            }
        ],
        "length": 2,
        "entropy": 0.3,
        "logs": "",
        "timing": {"sample": 0.25},
    }


def test_an_answer_of_an_outside_model_has_a_length_but_no_ids() -> None:
    (line,) = group_lines(Group(row(), (text_rollout(9, 1.0),)))
    assert (line["length"], line["entropy"]) == (9, None)
    assert not {"input_ids", "token_ids", "logprobs", "new_segment"} & line["turns"][0].keys()


def test_a_failed_rollout_names_its_cause_and_has_no_reward() -> None:
    played = Group(row(), (rollout([4], reward=1.0), rollout([5], failure="timeout", index=1)))
    scored, failed = rollout_lines(StepRecord(1, {}, (played,), ((),)))
    assert (scored["reward"], scored["advantage"], scored["failure"]) == (1.0, None, None)
    assert (failed["reward"], failed["components"]) == (None, {})
    assert failed["failure"] == {
        "cause": "timeout",
        "message": "timeout happened",
        "detail": "Traceback of timeout",
    }


def test_figures_are_the_same_after_reading() -> None:
    groups = [group(0.0, 1.0, number=1), failed_group(number=2), group(1.0, 1.0, number=3)]
    again = [there_and_back(played) for played in groups]
    assert group_metrics(again) == group_metrics(groups)
    assert pass_metrics(again, 1.0) == pass_metrics(groups, 1.0)
    assert again[1].failure == groups[1].failure


def test_a_conversation_with_tools_is_read_as_it_was() -> None:
    call = ToolCall("call_1", "search", '{"q": "x"}')
    first, second = turns((20, 21, 22, 23), (True, False, False, True))
    first = dataclasses.replace(
        first,
        message=Message("assistant", "", (call,)),
        observations=(Message("tool", "found", (), "call_1", "search"),),
        version=4,
    )
    played = dataclasses.replace(group(1.0).rollouts[0], turns=(first, second))
    assert there_and_back(Group(row(), (played,))) == Group(row(), (played,))
    assert played.segments[0].sampled_mask_T == (True, False, False, True)


def test_a_line_of_an_older_version_is_read() -> None:
    found = read_rollout(OLD_LINE)
    (turn,) = found.turns
    assert (turn.message, turn.length, turn.version) == (Message("assistant", "answer"), 2, None)
    assert (found.index, found.reward and found.reward.total, found.entropy) == (1, 1.25, 0.3)
    (segment,) = found.segments
    assert (segment.prompt_ids_T, segment.token_ids_T, segment.logprobs_T) == ((5, 6), (20, 21), (-0.1, -2.0))


def test_an_answer_of_an_older_evaluation_is_read() -> None:
    tokens = ("step", "advantage", "prompt_ids", "token_ids", "sampled_mask", "sampler_logprobs")
    found = read_rollout({key: value for key, value in OLD_LINE.items() if key not in tokens})
    assert (found.length, found.segments, found.messages) == (2, (), (Message("assistant", "answer"),))


def test_a_line_of_today_stays_as_it_is() -> None:
    (line,) = group_lines(group(1.0))
    assert upgraded(line) == line


@pytest.mark.parametrize("change", [{"messages": None}, {"sampled_mask": None}, {"timing": None}])
def test_a_damaged_line_is_an_error_that_callers_catch(change: dict[str, Any]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError, AttributeError)):
        upgraded({**OLD_LINE, **change})
