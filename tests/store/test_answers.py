"""Answers of an evaluation, written and read."""

from __future__ import annotations

import dataclasses
import json

from train_cases import failed_group, group, row

from strop.metrics import group_metrics, pass_metrics
from strop.store.answers import answer_lines, read_group
from strop.types import Group, Message, Step, ToolCall


def there_and_back(played: Group) -> Group:
    return read_group(played.row, json.loads(json.dumps(answer_lines(played))))


def test_lines_hold_what_was_said_and_scored_but_no_tokens() -> None:
    first, second = answer_lines(group({"form": 1.0, "fact": 0.5}, 0.0))
    assert (first["row"], first["line"], first["sample"], first["reward"]) == ("row-1", 1, 0, 1.5)
    assert first["components"] == {"form": 1.0, "fact": 0.5}
    assert (first["length"], second["sample"]) == (1, 1)
    assert not {"step", "advantage", "prompt_ids", "token_ids", "sampled_mask", "sampler_logprobs"} & set(first)


def test_figures_are_the_same_after_reading() -> None:
    groups = [group(0.0, 1.0, number=1), failed_group(number=2), group(1.0, 1.0, number=3)]
    again = [there_and_back(played) for played in groups]
    assert group_metrics(again) == group_metrics(groups)
    assert pass_metrics(again, 1.0) == pass_metrics(groups, 1.0)
    assert again[1].failure == groups[1].failure


def test_a_conversation_with_tools_is_read_as_it_was() -> None:
    call = ToolCall("call_1", "search", '{"q": "x"}')
    turns = (Message("assistant", "", (call,)), Message("tool", "found", (), "call_1"), Message("assistant", "yes"))
    played = group(1.0).rollouts[0]
    again = there_and_back(Group(row(), (), (dataclasses.replace(played, messages=turns),))).rollouts[0]
    assert again.messages == turns
    assert again.steps == (Step("", (call.as_dict(),)), Step("yes"))
