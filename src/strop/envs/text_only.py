"""Rollouts of models that answer with text: no token ids, and the length that their server counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from strop.envs.single_turn import cut_at_stop
from strop.types import Failure, Message, Rollout, Step, StopReason


def text_rollout(
    index: int, turn: Message, stop_reason: StopReason, tokens: int, seconds: float, stop: Sequence[str]
) -> Rollout:
    """One answer, cut at the first stop string, not scored yet."""
    text = cut_at_stop(turn.content, stop)
    return replace(
        unanswered(index, None),
        messages=(replace(turn, content=text),),
        steps=(Step(text, tuple(call.as_dict() for call in turn.tool_calls)),),
        stop_reason=stop_reason,
        timing={"sample": seconds},
        counted_tokens=tokens,
    )


def unanswered(index: int, failure: Failure | None) -> Rollout:
    """An attempt without an answer, and why there is none."""
    return Rollout(
        index=index,
        messages=(),
        steps=(),
        token_ids_T=(),
        sampled_mask_T=(),
        sampler_logprobs_T=(),
        entropy=None,
        stop_reason=StopReason.STOP,
        failure=failure,
        counted_tokens=0,
    )
