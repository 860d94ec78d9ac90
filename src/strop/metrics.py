"""Metrics of a set of groups, under the names that files, API and charts share.

Pure functions. A group with a failure counts only towards `rollouts_errored` and `failures/<cause>`, not towards any
reward metric: a failed reward is not a score.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import comb
from statistics import fmean, stdev

from strop.types import Group, Reward, Rollout, StopReason


def group_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """Rewards, components, lengths, entropy and failures of the groups of one step."""
    scored = [group for group in groups if group.failure is None]
    return {
        **_rewards(scored),
        **_components(scored),
        **_lengths(groups),
        **failure_metrics(groups),
    }


def _rewards(groups: Sequence[Group]) -> dict[str, float]:
    """Reward, max reward and solve rate; empty if no group was scored."""
    if not groups:
        return {}
    rewards_NG = [group.rewards_G for group in groups]
    return {
        **_summary("", rewards_NG),
        "reward_group_std": fmean(stdev(rewards) if len(rewards) > 1 else 0.0 for rewards in rewards_NG),
        "frac_reward_zero_std": fmean(min(rewards) == max(rewards) for rewards in rewards_NG),
    }


def _components(groups: Sequence[Group]) -> dict[str, float]:
    """Reward, max reward and solve rate of each component, over the rollouts that have it."""
    metrics: dict[str, float] = {}
    for name in _component_names(groups):
        values_NG = [
            [reward.components[name] for reward in _group_rewards(group) if name in reward.components]
            for group in groups
        ]
        metrics |= _summary(f"/{name}", [values for values in values_NG if values])
    return metrics


def _component_names(groups: Sequence[Group]) -> list[str]:
    names: dict[str, None] = {}
    for group in groups:
        for reward in _group_rewards(group):
            names |= dict.fromkeys(reward.components)
    return list(names)


def _group_rewards(group: Group) -> list[Reward]:
    return [rollout.reward for rollout in group.rollouts if rollout.reward is not None]


def _summary(suffix: str, values_NG: Sequence[Sequence[float]]) -> dict[str, float]:
    """Mean over all values, mean over prompts of the maximum, share of prompts with any non-zero value."""
    return {
        f"reward{suffix}": fmean(value for values in values_NG for value in values),
        f"max_reward{suffix}": fmean(max(values) for values in values_NG),
        f"solve_rate{suffix}": fmean(any(value != 0 for value in values) for values in values_NG),
    }


def _lengths(groups: Sequence[Group]) -> dict[str, float]:
    rollouts = [rollout for group in groups for rollout in group.rollouts if rollout.answered]
    if not rollouts:
        return {}
    return {
        "response_length": fmean(rollout.length for rollout in rollouts),
        "response_length_clip_ratio": fmean(rollout.stop_reason == StopReason.LENGTH for rollout in rollouts),
        **_entropy(rollouts),
    }


def _entropy(rollouts: Sequence[Rollout]) -> dict[str, float]:
    """Mean entropy over all tokens; empty if the completer reports none."""
    known = [(rollout.entropy, rollout.length) for rollout in rollouts if rollout.entropy is not None]
    if not known:
        return {}
    return {"entropy": sum(entropy * length for entropy, length in known) / max(sum(n for _, n in known), 1)}


def failure_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """How many rollouts could not be scored, and why."""
    causes = Counter(rollout.failure.cause for group in groups for rollout in group.rollouts if rollout.failure)
    return {"rollouts_errored": float(causes.total()), **{f"failures/{cause}": n for cause, n in causes.items()}}


def mean_advantage(advantages: Sequence[Sequence[float]]) -> dict[str, float]:
    """`advantages`: mean over all scored rollouts; empty if there are none."""
    values = [value for group in advantages for value in group]
    return {"advantages": fmean(values)} if values else {}


def pass_at_k(passed: int, samples: int, k: int) -> float:
    """Unbiased estimate of pass@k for `passed` of `samples` completions: 1 - C(n - c, k) / C(n, k) (Chen et al.
    2021, arXiv:2107.03374)."""
    return 1.0 - comb(samples - passed, k) / comb(samples, k)


def pass_metrics(groups: Sequence[Group], threshold: float) -> dict[str, float]:
    """`pass@k` for k = 1, 2, 4 … and the number of samples, over the scored groups."""
    scored = [group.rewards_G for group in groups if group.failure is None]
    counts = [(sum(reward >= threshold for reward in rewards_G), len(rewards_G)) for rewards_G in scored]
    if not counts:
        return {}
    most = min(samples for _, samples in counts)
    sizes = sorted({2**power for power in range(most.bit_length())} | {most})
    return {f"pass@{k}": fmean(pass_at_k(passed, samples, k) for passed, samples in counts) for k in sizes}


def prefixed(prefix: str, metrics: Mapping[str, float]) -> dict[str, float]:
    """Metrics with a prefix such as `validation/` added to each name."""
    return {f"{prefix}{name}": value for name, value in metrics.items()}
