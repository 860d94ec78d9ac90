"""Helpers: runs made of curves with noise, healthy unless told otherwise."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping

from strop.insight.findings import Curves
from strop.insight.trend import Curve

Shape = Callable[[float], float]
"""Where a metric is at a share of the run, from 0 to 1, noise left out."""

NOISE: Mapping[str, float] = {
    "reward": 0.06,
    "max_reward": 0.05,
    "solve_rate": 0.06,
    "reward_group_std": 0.04,
    "frac_reward_zero_std": 0.12,
    "validation/reward": 0.03,
}
"""Standard deviations from step to step: those of 8 prompts and 8 samples."""
RELATIVE = {"response_length": 0.1, "entropy": 0.08, "kl_loss": 0.15, "sampler_trainer_gap": 0.2}
"""The same, as a share of the value."""
SHARES = ("solve_rate", "frac_reward_zero_std", "response_length_clip_ratio")


def learning(start: float, end: float, middle: float = 0.25, width: float = 0.08) -> Shape:
    """A course that turns from one level to another."""
    return lambda share: start + (end - start) / (1 + math.exp((middle - share) / width))


def steady(value: float) -> Shape:
    """A level that stays."""
    return lambda share: value


def straight(start: float, end: float) -> Shape:
    """A line."""
    return lambda share: start + (end - start) * share


HEALTHY: Mapping[str, Shape] = {
    "reward": learning(0.2, 0.85),
    "max_reward": learning(0.5, 0.97),
    "solve_rate": learning(0.5, 0.97),
    "reward_group_std": learning(0.3, 0.15),
    "frac_reward_zero_std": learning(0.2, 0.45),
    "response_length": learning(120, 105),
    "response_length_clip_ratio": steady(0.02),
    "entropy": learning(0.9, 0.5),
    "kl_loss": straight(0.0005, 0.012),
    "grad_norm": steady(0.4),
    "rollouts_errored": steady(0),
    "sampler_trainer_gap": steady(0.008),
    "validation/reward": learning(0.2, 0.8),
}


def run(
    steps: int,
    seed: int = 0,
    shapes: Mapping[str, Shape | None] = HEALTHY,
    planned: int | None = None,
    noise: float = 1.0,
) -> Curves:
    """The first steps of a run of `planned`, healthy but for `shapes`; None takes a metric away."""
    draw = random.Random(seed)
    curves = {}
    for name, shape in {**HEALTHY, **shapes}.items():
        every = 10 if name.startswith("validation/") else 1
        places = [step for step in range(1, steps + 1) if step % every == 0]
        if shape is not None:
            values = [_noisy(draw, name, shape(step / (planned or steps)), noise) for step in places]
            curves[name] = Curve(places, values)
    return Curves(curves, rollouts_per_step=64)


def _noisy(draw: random.Random, name: str, value: float, noise: float) -> float:
    if value in (0, 1):
        return value
    if name == "grad_norm":
        return value * math.exp(draw.gauss(0, 0.4 * noise))
    found = value + draw.gauss(0, noise * (NOISE.get(name, 0) + RELATIVE.get(name, 0) * value))
    return min(1.0, max(0.0, found)) if name in SHARES else max(0.0, found)
