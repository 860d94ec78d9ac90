"""Rollouts as lines of JSON, and back: one schema for training, evaluation and the API.

    {"step", "row", "line", "sample", "reward", "components", "weights", "advantage",
     "stop_reason", "failure", "prompt": [messages], "turns": [turn], "length", "entropy",
     "logs", "timing"}

A turn is `{"message", "observations", "stop_reason", "length", "entropy",
"version", "seconds", "input_ids", "token_ids", "logprobs", "new_segment"}`; the last four are missing where the back
end told only text. `input_ids` stand between what the segment held before and `token_ids`, which
were sampled; in the first turn of a segment they are its prompt.

Lines of older versions have one flat sequence instead of turns: `upgraded` reads them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from strop.types import (
    Failure,
    Group,
    Json,
    Message,
    Reward,
    Rollout,
    Row,
    StepRecord,
    StopReason,
    ToolCall,
    Turn,
    TurnTokens,
)

TOKEN_KEYS = ("input_ids", "token_ids", "logprobs", "new_segment")
"""What a turn has only where its tokens are known."""
_OLD_KEYS = frozenset({"messages", "prompt_ids", "token_ids", "sampled_mask", "sampler_logprobs"})


def rollout_lines(record: StepRecord) -> list[dict[str, Json]]:
    """One object for each rollout of a step, each complete in itself."""
    return [
        _line(record.step, group, rollout, advantage)
        for group, advantages in zip(record.groups, record.advantages, strict=True)
        for rollout, advantage in zip(group.rollouts, advantages or [None] * len(group.rollouts), strict=True)
    ]


def group_lines(group: Group) -> list[dict[str, Json]]:
    """One object for each rollout of a group outside of training: step 0, no advantage."""
    return rollout_lines(StepRecord(0, {}, (group,), ((),)))


def read_group(row: Row, lines: Sequence[Mapping[str, Json]]) -> Group:
    """The group that lines were made of."""
    return Group(row, tuple(map(read_rollout, lines)))


def read_rollout(line: Mapping[str, Json]) -> Rollout:
    """The rollout that a line was made of."""
    line = upgraded(line)
    scored = line["reward"] is not None
    return Rollout(
        index=line["sample"],
        turns=read_turns(line),
        stop_reason=StopReason(line["stop_reason"]),
        reward=Reward(line["reward"], line["components"], line["weights"]) if scored else None,
        failure=Failure(**line["failure"]) if line["failure"] else None,
        logs=line["logs"],
        timing=line["timing"],
    )


def read_turns(line: Mapping[str, Json]) -> tuple[Turn, ...]:
    """The turns of a line in today's form."""
    return tuple(map(_read_turn, line["turns"]))


def upgraded(line: Mapping[str, Json]) -> dict[str, Json]:
    """The line in today's form; a line of an older version has one flat sequence.

    Raises KeyError, TypeError or ValueError for a line that is damaged.
    """
    if "turns" in line:
        return dict(line)
    kept = {key: value for key, value in line.items() if key not in _OLD_KEYS}
    return {"entropy": None, **kept, "length": _old_length(line), "turns": list(_old_turns(line))}


def _old_turns(line: Mapping[str, Json]) -> Iterator[dict[str, Json]]:
    """Assistant messages with what followed each. Older versions sampled a single turn."""
    messages = list(line["messages"])
    starts = [place for place, message in enumerate(messages) if message["role"] == "assistant"]
    for start, end in zip(starts, [*starts[1:], len(messages)], strict=True):
        yield {
            "message": messages[start],
            "observations": messages[start + 1 : end],
            "stop_reason": line["stop_reason"],
            "length": _old_length(line) if len(starts) == 1 else 0,
            "entropy": line.get("entropy"),
            "version": None,
            "seconds": line["timing"].get("sample", 0.0),
            **(_old_tokens(line) if len(starts) == 1 and "token_ids" in line else {}),
        }


def _old_length(line: Mapping[str, Json]) -> int:
    return int(line["length"] if "length" in line else sum(line["sampled_mask"]))


def _old_tokens(line: Mapping[str, Json]) -> dict[str, Json]:
    if not all(line["sampled_mask"]):
        return {}
    tokens = {"input_ids": line["prompt_ids"], "token_ids": line["token_ids"]}
    return {**tokens, "logprobs": line["sampler_logprobs"], "new_segment": False}


def _line(step: int, group: Group, rollout: Rollout, advantage: float | None) -> dict[str, Json]:
    reward, failure, entropy = rollout.reward, rollout.failure, rollout.entropy
    return {
        "step": step,
        "row": group.row.id,
        "line": group.row.line,
        "sample": rollout.index,
        "reward": reward.total if reward else None,
        "components": dict(reward.components) if reward else {},
        "weights": dict(reward.weights) if reward else {},
        "advantage": advantage,
        "stop_reason": rollout.stop_reason,
        "failure": {"cause": failure.cause, "message": failure.message, "detail": failure.detail} if failure else None,
        "prompt": [message.as_dict() for message in group.row.messages],
        "turns": [_turn(turn) for turn in rollout.turns],
        "length": rollout.length,
        "entropy": None if entropy is None else round(entropy, 6),
        "logs": rollout.logs,
        "timing": {name: round(seconds, 4) for name, seconds in rollout.timing.items()},
    }


def _turn(turn: Turn) -> dict[str, Json]:
    form: dict[str, Json] = {
        "message": turn.message.as_dict(),
        "observations": [message.as_dict() for message in turn.observations],
        "stop_reason": turn.stop_reason,
        "length": turn.length,
        "entropy": None if turn.entropy is None else round(turn.entropy, 6),
        "version": turn.version,
        "seconds": round(turn.seconds, 4),
    }
    if turn.tokens is not None:
        form["input_ids"] = list(turn.tokens.input_ids_T)
        form["token_ids"] = list(turn.tokens.token_ids_T)
        form["logprobs"] = [round(logprob, 6) for logprob in turn.tokens.logprobs_T]
        form["new_segment"] = turn.tokens.new_segment
    return form


def _read_turn(form: Mapping[str, Json]) -> Turn:
    tokens = None
    if "token_ids" in form:
        ids = tuple(form["input_ids"]), tuple(form["token_ids"])
        tokens = TurnTokens(*ids, tuple(form["logprobs"]), form["new_segment"])
    return Turn(
        message=_read_message(form["message"]),
        stop_reason=StopReason(form["stop_reason"]),
        length=form["length"],
        tokens=tokens,
        entropy=form["entropy"],
        version=form["version"],
        seconds=form["seconds"],
        observations=tuple(map(_read_message, form["observations"])),
    )


def _read_message(form: Mapping[str, Json]) -> Message:
    calls = tuple(
        ToolCall(call["id"], call["function"]["name"], call["function"]["arguments"])
        for call in form.get("tool_calls", ())
    )
    return Message(form["role"], form["content"], calls, form.get("tool_call_id"), form.get("name"))
