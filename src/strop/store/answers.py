"""Answers of an evaluation as lines of a file, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from strop.store.recorder import rollout_lines
from strop.types import Failure, Group, Json, Message, Reward, Rollout, Row, Step, StepRecord, StopReason, ToolCall

_OF_TRAINING = frozenset({"step", "advantage", "prompt_ids", "token_ids", "sampled_mask", "sampler_logprobs"})


def answer_lines(group: Group) -> list[dict[str, Json]]:
    """One object for each answer to a row: as in training, without tokens and what only training has."""
    lines = rollout_lines(StepRecord(0, {}, (group,), ((),)))
    return [{key: value for key, value in line.items() if key not in _OF_TRAINING} for line in lines]


def read_group(row: Row, lines: Sequence[Mapping[str, Json]]) -> Group:
    """The group that lines were made of; of its tokens only their number is left."""
    return Group(row, (), tuple(map(_rollout, lines)))


def _rollout(line: Mapping[str, Json]) -> Rollout:
    turns = tuple(map(_message, line["messages"]))
    scored = line["reward"] is not None
    return Rollout(
        index=line["sample"],
        messages=turns,
        steps=tuple(
            Step(turn.content, tuple(call.as_dict() for call in turn.tool_calls))
            for turn in turns
            if turn.role == "assistant"
        ),
        token_ids_T=(),
        sampled_mask_T=(),
        sampler_logprobs_T=(),
        entropy=line["entropy"],
        stop_reason=StopReason(line["stop_reason"]),
        reward=Reward(line["reward"], line["components"], line["weights"]) if scored else None,
        failure=Failure(**line["failure"]) if line["failure"] else None,
        logs=line["logs"],
        timing=line["timing"],
        counted_tokens=line["length"],
    )


def _message(turn: Mapping[str, Json]) -> Message:
    calls = tuple(
        ToolCall(call["id"], call["function"]["name"], call["function"]["arguments"])
        for call in turn.get("tool_calls", ())
    )
    return Message(turn["role"], turn["content"], calls, turn.get("tool_call_id"), turn.get("name"))
