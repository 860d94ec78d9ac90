"""Helpers: rollouts, groups, samples and configurations, made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count, groupby
from typing import Any

from strop.config import RunConfig, parse_config
from strop.train.batch import Sample
from strop.types import Failure, Group, Message, Reward, Rollout, Row, Segment, StopReason, Turn, TurnTokens

PROMPT = (1, 2, 3)
_numbers = count()  # of rollouts: no two of a step have the same


def config(sampling: dict[str, Any] | None = None, **train: Any) -> RunConfig:
    """A configuration around these settings of `[train]`."""
    return parse_config(
        {
            "name": "case",
            "model": "tiny",
            "data": {"train": "rows.jsonl", "validation": "held_out.jsonl"},
            "rewards": [{"name": "score", "source": "reward.py:score"}],
            "sampling": {"max_prompt_tokens": 16, "max_completion_tokens": 8, **(sampling or {})},
            "train": train,
        }
    )


def row(number: int = 1) -> Row:
    """A row without anything that matters."""
    return Row(f"row-{number}", number, (Message("user", f"question {number}"),), (), None, {})


def segment(
    ids: Sequence[int],
    mask: Sequence[bool] | None = None,
    logprobs: Sequence[float] | None = None,
    prompt: Sequence[int] = PROMPT,
) -> Segment:
    """A token sequence behind a prompt; every token is sampled unless a mask says otherwise."""
    sampled = (True,) * len(ids) if mask is None else tuple(mask)
    return Segment(tuple(prompt), tuple(ids), sampled, (-1.0,) * len(ids) if logprobs is None else tuple(logprobs))


def turns(
    ids: Sequence[int],
    mask: Sequence[bool] | None = None,
    logprobs: Sequence[float] | None = None,
    entropy: float | None = 0.5,
    stop_reason: StopReason = StopReason.STOP,
    prompt: Sequence[int] = PROMPT,
) -> tuple[Turn, ...]:
    """A turn for each run of sampled ids; what the mask leaves out stands in front of the next."""
    whole = segment(ids, mask, logprobs, prompt)
    found: list[Turn] = []
    before = list(prompt)
    for sampled, run in groupby(range(len(ids)), key=lambda place: whole.sampled_mask_T[place]):
        places = list(run)
        if not sampled:
            before = [ids[place] for place in places]
            continue
        values = tuple(whole.logprobs_T[place] for place in places)
        tokens = TurnTokens(tuple(before), tuple(ids[place] for place in places), values)
        found.append(Turn(Message("assistant", "answer"), stop_reason, len(places), tokens, entropy, seconds=0.25))
    return tuple(found)


def rollout(
    ids: Sequence[int],
    mask: Sequence[bool] | None = None,
    reward: float | dict[str, float] | None = None,
    failure: str | None = None,
    index: int = 0,
    logprobs: Sequence[float] | None = None,
    entropy: float = 0.5,
    stop_reason: StopReason = StopReason.STOP,
) -> Rollout:
    """A rollout of these ids. A reward of several components weighs each with 1."""
    components = {"score": reward} if isinstance(reward, int | float) else reward
    return Rollout(
        index=index,
        turns=turns(ids, mask, logprobs, entropy, stop_reason),
        stop_reason=stop_reason,
        reward=Reward(sum(components.values()), components, dict.fromkeys(components, 1.0)) if components else None,
        failure=Failure(failure, f"{failure} happened", f"Traceback of {failure}") if failure else None,
        timing={"sample": 0.25},
    )


def text_rollout(tokens: int, reward: float | None = None, failure: str | None = None) -> Rollout:
    """A rollout of an outside model: text and a count of tokens; none where it failed."""
    turn = Turn(Message("assistant", "answer"), StopReason.STOP, tokens)
    return Rollout(
        index=0,
        turns=() if failure else (turn,),
        stop_reason=StopReason.STOP,
        reward=None if reward is None else Reward(reward, {"score": reward}, {"score": 1.0}),
        failure=Failure(failure, f"{failure} happened") if failure else None,
    )


def group(*rewards: float | dict[str, float], number: int = 1) -> Group:
    """A group of one-token rollouts with these rewards."""
    rollouts = [rollout([4 + index], reward=reward, index=index) for index, reward in enumerate(rewards)]
    return Group(row(number), tuple(rollouts))


def failed_group(cause: str = "exception", number: int = 1) -> Group:
    """A group of a scored rollout and one that could not be scored."""
    return Group(row(number), (rollout([4], reward=1.0), rollout([5], failure=cause, index=1)))


def sample(prompt: Sequence[int], completions: Sequence[Sequence[int]], advantages: Sequence[float]) -> Sample:
    """Completions of a prompt, all of whose tokens were sampled."""
    return sample_of(prompt, [segment(ids, prompt=prompt) for ids in completions], advantages)


def sample_of(prompt: Sequence[int], segments: Sequence[Segment], advantages: Sequence[float]) -> Sample:
    """Segments of a prompt, each a rollout of its own."""
    lengths = tuple(sum(each.sampled_mask_T) for each in segments)
    return Sample(tuple(prompt), tuple(segments), tuple(advantages), tuple(next(_numbers) for _ in segments), lengths)
