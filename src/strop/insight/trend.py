"""Trend of a noisy curve: rising, falling or flat. Pure functions.

Curves of reinforcement learning are noisy, have outliers and are not normally distributed. The slope is the
Theil-Sen estimator, the median slope over all pairs of points, which is robust to a quarter of outliers (Sen 1968,
JASA 63:1379). The Mann-Kendall rank test decides whether there is a trend (Mann 1945, Econometrica 13:245). The test
assumes independent points, which consecutive steps are not, so it is applied to means of at most 20 windows, and a
trend counts only if the change also reaches a minimum that each rule defines.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import erfc, sqrt
from statistics import fmean, median

STRETCHES = 20
SURE = 0.01
"""p-value below which a trend is none of chance."""
UNSURE = 0.05
"""p-value above which there may be no trend."""


@dataclass(frozen=True)
class Curve:
    """A metric over steps; steps without a value are omitted."""

    steps: Sequence[int]
    values: Sequence[float]

    def __len__(self) -> int:
        return len(self.steps)

    def since(self, step: int) -> Curve:
        """The part from a step on."""
        return self._cut(bisect_left(self.steps, step), len(self.steps))

    def until(self, step: int) -> Curve:
        """The part up to and including a step."""
        return self._cut(0, bisect_right(self.steps, step))

    def first(self, count: int) -> Curve:
        """The first points."""
        return self._cut(0, count)

    def last(self, count: int) -> Curve:
        """The last points."""
        return self._cut(max(0, len(self.steps) - count), len(self.steps))

    @property
    def mean(self) -> float:
        """Mean of the values; there must be at least one."""
        return fmean(self.values)

    def quantile(self, share: float) -> float:
        """Quantile of the values."""
        ordered = sorted(self.values)
        return ordered[round(share * (len(ordered) - 1))]

    def _cut(self, start: int, end: int) -> Curve:
        return Curve(self.steps[start:end], self.values[start:end])


@dataclass(frozen=True)
class Trend:
    """A line through a curve, with the p-value of its direction."""

    start: float
    """Value of the line at the first step."""
    end: float
    p_value: float
    """p-value of the Mann-Kendall test."""

    @property
    def change(self) -> float:
        """Change of the line from the first step to the last."""
        return self.end - self.start

    def rises(self, by: float) -> bool:
        """Whether the trend is significant and at least this large."""
        return self.p_value < SURE and self.change >= by

    def falls(self, by: float) -> bool:
        """Whether the trend is significant and at least this large."""
        return self.p_value < SURE and self.change <= -by

    def stays(self, within: float) -> bool:
        """Whether the line changes by less than this, or by slightly more without significance."""
        return abs(self.change) < within or (self.p_value > UNSURE and abs(self.change) < 3 * within)


def trend(curve: Curve) -> Trend:
    """The trend of a curve of at least two points."""
    steps, values = _stretches(curve)
    pairs = [(i, j) for i in range(len(steps)) for j in range(i)]
    slope = median((values[i] - values[j]) / (steps[i] - steps[j]) for i, j in pairs)
    level = median(value - slope * step for step, value in zip(steps, values, strict=True))
    order = sum((values[i] > values[j]) - (values[i] < values[j]) for i, j in pairs)
    return Trend(level + slope * curve.steps[0], level + slope * curve.steps[-1], _kendall_p(order, len(steps)))


def noise(curve: Curve) -> float:
    """Standard deviation of the noise, estimated from differences of neighbouring points."""
    moves = [abs(b - a) for a, b in pairwise(curve.values)]
    return 1.4826 * median(moves) / sqrt(2) if moves else 0.0


def _stretches(curve: Curve) -> tuple[list[float], list[float]]:
    """Mean step and mean value of at most STRETCHES windows of nearly equal size."""
    count = min(STRETCHES, len(curve))
    ends = [round(part * len(curve) / count) for part in range(count + 1)]
    parts = list(pairwise(ends))
    return [fmean(curve.steps[a:b]) for a, b in parts], [fmean(curve.values[a:b]) for a, b in parts]


def _kendall_p(order: int, count: int) -> float:
    """Two-sided p-value of the Mann-Kendall statistic, by normal approximation."""
    if order == 0:
        return 1.0
    deviation = sqrt(count * (count - 1) * (2 * count + 5) / 18)
    return erfc((abs(order) - 1) / deviation / sqrt(2))
