"""Figures about evaluations, with the uncertainty that few rows leave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev

from strop.types import Group

# Two-sided 95 % of the normal distribution.
_Z95 = 1.96


@dataclass(frozen=True)
class Estimate:
    """A mean over rows and half the width of its 95 % confidence interval."""

    mean: float
    margin: float | None
    """None with a single row, which says nothing about the others."""

    def __str__(self) -> str:
        return f"{self.mean:.3f}" + ("" if self.margin is None else f" ± {self.margin:.3f}")


@dataclass(frozen=True)
class Comparison:
    """Two models on the same rows."""

    before: Estimate
    after: Estimate
    change: Estimate
    """Of the paired differences: row by row, so that hard and easy rows cancel out."""
    better: int
    """Rows whose mean reward rose."""
    worse: int


def row_means(groups: Sequence[Group]) -> dict[str, float]:
    """Mean reward of each scored row, by row id."""
    return {group.row.id: fmean(group.rewards_G) for group in groups if group.failure is None}


def estimate(values: Sequence[float]) -> Estimate:
    """Mean and margin; the rows are the independent draws, not the samples of one row."""
    margin = _Z95 * stdev(values) / sqrt(len(values)) if len(values) > 1 else None
    return Estimate(fmean(values), margin)


def compare(before: Sequence[Group], after: Sequence[Group]) -> Comparison:
    """Paired comparison over the rows that both could be scored on."""
    first, second = row_means(before), row_means(after)
    shared = [row for row in first if row in second]
    changes = [second[row] - first[row] for row in shared]
    return Comparison(
        before=estimate([first[row] for row in shared]),
        after=estimate([second[row] for row in shared]),
        change=estimate(changes),
        better=sum(change > 0 for change in changes),
        worse=sum(change < 0 for change in changes),
    )
