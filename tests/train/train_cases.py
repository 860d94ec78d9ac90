"""Helpers: rollouts, groups, samples and configurations, made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from strop.config import RunConfig, parse_config
from strop.train.batch import Sample
from strop.types import Failure, Group, Message, Reward, Rollout, Row, Step, StopReason


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
        messages=(Message("assistant", "answer"),),
        steps=(Step("answer"),),
        token_ids_T=tuple(ids),
        sampled_mask_T=(True,) * len(ids) if mask is None else tuple(mask),
        sampler_logprobs_T=(-1.0,) * len(ids) if logprobs is None else tuple(logprobs),
        entropy=entropy,
        stop_reason=stop_reason,
        reward=Reward(sum(components.values()), components, dict.fromkeys(components, 1.0)) if components else None,
        failure=Failure(failure, f"{failure} happened", f"Traceback of {failure}") if failure else None,
        timing={"sample": 0.25},
    )


def group(*rewards: float | dict[str, float], number: int = 1) -> Group:
    """A group of one-token rollouts with these rewards."""
    rollouts = [rollout([4 + index], reward=reward, index=index) for index, reward in enumerate(rewards)]
    return Group(row(number), (1, 2, 3), tuple(rollouts))


def failed_group(cause: str = "exception", number: int = 1) -> Group:
    """A group of a scored rollout and one that could not be scored."""
    return Group(row(number), (1, 2, 3), (rollout([4], reward=1.0), rollout([5], failure=cause, index=1)))


def sample(prompt: Sequence[int], completions: Sequence[Sequence[int]], advantages: Sequence[float]) -> Sample:
    """Completions of a prompt, all of whose tokens were sampled."""
    rollouts = tuple(rollout(ids, index=index) for index, ids in enumerate(completions))
    return Sample(tuple(prompt), rollouts, tuple(advantages))
