"""From rewards to advantages: how much better than its group an answer was.

Pure functions over plain numbers. The scale is what deviations from the group mean are
divided by; standard deviations are those of a sample (n - 1), as in TRL.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, stdev

# Keeps a group of nearly equal rewards from being blown up; the value is TRL's.
_EPSILON = 1e-4

Advantages = Callable[[Sequence[Sequence[float]]], list[list[float]]]


def by_group(rewards_NG: Sequence[Sequence[float]]) -> list[list[float]]:
    """(r - group mean) / group deviation: GRPO (Shao et al. 2024, arXiv:2402.03300)."""
    return [_scaled(rewards_G, stdev(rewards_G)) for rewards_G in rewards_NG]


def by_batch(rewards_NG: Sequence[Sequence[float]]) -> list[list[float]]:
    """(r - group mean) / deviation of all rewards of the step: keeps the groups comparable
    (Liu et al. 2025, arXiv:2508.08221)."""
    rewards = [reward for rewards_G in rewards_NG for reward in rewards_G]
    spread = stdev(rewards) if len(rewards) > 1 else 0.0
    return [_scaled(rewards_G, spread) for rewards_G in rewards_NG]


def unscaled(rewards_NG: Sequence[Sequence[float]]) -> list[list[float]]:
    """r - group mean: Dr. GRPO (Liu et al. 2025, arXiv:2503.20783)."""
    return [_deviations(rewards_G) for rewards_G in rewards_NG]


def _scaled(rewards_G: Sequence[float], spread: float) -> list[float]:
    return [deviation / (spread + _EPSILON) for deviation in _deviations(rewards_G)]


def _deviations(rewards_G: Sequence[float]) -> list[float]:
    # Equal rewards deviate by exactly zero. The rounding of their mean would leave 1e-17, which
    # Adam, knowing no size of gradients, would turn into a full update in a random direction.
    if min(rewards_G) == max(rewards_G):
        return [0.0] * len(rewards_G)
    mean = fmean(rewards_G)
    return [reward - mean for reward in rewards_G]


ADVANTAGES: Mapping[str, Advantages] = {"group": by_group, "batch": by_batch, "none": unscaled}
