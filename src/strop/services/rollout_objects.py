"""A rollout as every route answers it: of training, of an evaluation, of a trial."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from strop.policy.tokens import token_texts
from strop.services.objects import Answer
from strop.store.rollout_lines import read_turns
from strop.types import Json, Segment, segments_of


class FailureObject(Answer):
    """Why a rollout could not be scored."""

    cause: str
    message: str
    detail: str = ""


class TurnObject(Answer):
    """One assistant turn, and what the environment answered it with."""

    message: dict[str, Any]
    observations: list[dict[str, Any]]
    """Tool results or a user's message that came next."""
    stop_reason: str
    length: int
    """Sampled tokens."""
    entropy: float | None
    version: int | None
    """Of the policy that sampled it; None where that is unknown."""
    seconds: float


class RolloutFields(Answer):
    """One attempt at a prompt: its turns, and what they were worth."""

    sample: int
    turns: list[TurnObject]
    reward: float | None
    """None where it could not be scored."""
    components: dict[str, float]
    weights: dict[str, float]
    """The reward is the sum of each component times its weight; 0 is logged only."""
    stop_reason: str
    length: int
    """Sampled tokens of all turns."""
    entropy: float | None
    """Mean over the sampled tokens, in nats."""
    failure: FailureObject | None
    logs: str
    """What the reward functions logged and printed."""
    timing: dict[str, float]
    """Seconds."""


class Token(Answer):
    """One token behind a prompt."""

    id: int
    text: str
    sampled: bool
    """Whether the model sampled it: only then it is trained on."""
    logprob: float | None
    """Under the sampler; None where it was not sampled."""


class SegmentObject(Answer):
    """A token sequence that is trained on: one prompt and what followed it."""

    prompt_tokens: int
    token_ids: list[int]
    tokens: list[Token] | None
    """None where no tokenizer of the model is on this machine."""


def segment_objects(line: Mapping[str, Json], tokenizer: Path | None) -> list[SegmentObject]:
    """The segments of a rollout's line; `tokenizer` is a folder that gives tokens their text."""
    return [_segment(segment, tokenizer) for segment in segments_of(read_turns(line))]


def _segment(segment: Segment, tokenizer: Path | None) -> SegmentObject:
    texts = token_texts(tokenizer, segment.token_ids_T) if tokenizer else None
    tokens = None
    if texts is not None:
        columns = zip(segment.token_ids_T, texts, segment.sampled_mask_T, segment.logprobs_T, strict=True)
        tokens = [
            Token(id=id, text=text, sampled=sampled, logprob=logprob if sampled else None)
            for id, text, sampled, logprob in columns
        ]
    return SegmentObject(prompt_tokens=len(segment.prompt_ids_T), token_ids=list(segment.token_ids_T), tokens=tokens)
