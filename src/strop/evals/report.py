"""Statistics of evaluations, with confidence intervals. Pure functions.

The rows are the independent draws, not the samples of one row: a mean is over rows, and its
interval tells how much another draw of rows could have changed it (Miller 2024,
arXiv:2411.00640). It is Student's; for values that are all 0 or 1 it is Wilson's score
interval, since the other has no width where every row passed (Bowyer et al. 2025,
arXiv:2503.01747). All intervals are two-sided, 95 %.

Two models are compared on the same rows, by the difference of each, and tested by flipping
the signs of these: were the models alike, each difference could as well be its opposite
(Fisher 1935, The Design of Experiments, chapter 3).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import erfc, sqrt
from statistics import fmean, stdev

from strop.metrics import pass_at_k
from strop.types import Group

_Z = 1.959964
# Student's quantiles for 1 and 2 degrees of freedom, where the expansion below is too coarse.
_T = {1: 12.706, 2: 4.303}
_EXACT_ROWS = 16
"""Up to this many differing rows, all sign patterns are enumerated: 65,536."""
_EQUAL = 1e-9
"""Rewards that differ by less count as equal, because the order of float sums varies."""


@dataclass(frozen=True)
class RowResult:
    """Result of one row."""

    row: str
    """Id of the row."""
    reward: float | None
    """Mean over the samples; None if one of them could not be scored."""
    passed: int
    """Number of samples that pass."""
    samples: int
    components: Mapping[str, float]
    """Mean of each reward component over the samples."""


@dataclass(frozen=True)
class Estimate:
    """A mean over rows with its 95 % confidence interval."""

    mean: float
    low: float | None
    """None with a single row."""
    high: float | None

    def __str__(self) -> str:
        return f"{self.mean:.3f}" + ("" if self.low is None else f" [{self.low:.3f}, {self.high:.3f}]")


@dataclass(frozen=True)
class Report:
    """One model on a data set."""

    rows: int
    scored: int
    """Number of rows with all samples scored; results are over these."""
    reward: Estimate | None
    """None if no row could be scored; the other results are then empty."""
    pass_at: Mapping[int, Estimate]
    """pass@k for k = 1, 2, 4 … and the number of samples."""
    components: Mapping[str, Estimate]


@dataclass(frozen=True)
class Comparison:
    """Paired comparison of two models on the rows scored for both."""

    rows: int
    before: Estimate
    after: Estimate
    change: Estimate
    """Paired difference of the rows' mean rewards."""
    pass_change: Estimate
    """Paired difference of the pass rates."""
    components: Mapping[str, Estimate]
    """Difference of each component that both have."""
    better: int
    """Number of rows with a higher mean reward."""
    worse: int
    equal: int
    p_value: float
    """p-value of the sign-flip permutation test."""


def row_result(group: Group, threshold: float) -> RowResult:
    """The result of a group; a sample passes with at least `threshold`."""
    failed = group.failure is not None
    rewards = [rollout.reward for rollout in group.rollouts if rollout.reward is not None]
    names = dict.fromkeys(name for reward in rewards for name in reward.components)
    return RowResult(
        row=group.row.id,
        reward=None if failed else fmean(reward.total for reward in rewards),
        passed=sum(reward.total >= threshold for reward in rewards),
        samples=len(group.rollouts),
        components={
            name: fmean(reward.components[name] for reward in rewards if name in reward.components) for name in names
        },
    )


def report(results: Iterable[RowResult]) -> Report:
    """The results of one model."""
    every = list(results)
    scored = [result for result in every if result.reward is not None]
    names = dict.fromkeys(name for result in scored for name in result.components)
    return Report(
        rows=len(every),
        scored=len(scored),
        reward=estimate([result.reward for result in scored if result.reward is not None]) if scored else None,
        pass_at=_pass_at(scored),
        components={
            name: estimate([result.components[name] for result in scored if name in result.components])
            for name in names
        },
    )


def compare(before: Iterable[RowResult], after: Iterable[RowResult]) -> Comparison | None:
    """Paired comparison over the rows scored for both; None if there are none."""
    later = {result.row: result for result in after if result.reward is not None}
    pairs = [(first, later[first.row]) for first in before if first.reward is not None and first.row in later]
    if not pairs:
        return None
    changes = [_change(first.reward, second.reward) for first, second in pairs]
    names = [name for name in pairs[0][0].components if all(name in r.components for pair in pairs for r in pair)]
    return Comparison(
        rows=len(pairs),
        before=estimate([first.reward for first, _ in pairs if first.reward is not None]),
        after=estimate([second.reward for _, second in pairs if second.reward is not None]),
        change=_student(changes),
        pass_change=_student(
            [second.passed / second.samples - first.passed / first.samples for first, second in pairs]
        ),
        components={
            name: _student([second.components[name] - first.components[name] for first, second in pairs])
            for name in names
        },
        better=sum(change > 0 for change in changes),
        worse=sum(change < 0 for change in changes),
        equal=sum(change == 0 for change in changes),
        p_value=sign_flip_p(changes),
    )


def estimate(values: Sequence[float]) -> Estimate:
    """Mean and interval of one score per row, for at least one row."""
    if len(values) > 1 and all(value in (0, 1) for value in values):
        return _wilson(fmean(values), len(values))
    return _student(values)


def _student(values: Sequence[float]) -> Estimate:
    mean, count = fmean(values), len(values)
    if count == 1:
        return Estimate(mean, None, None)
    margin = student_quantile(count - 1) * stdev(values) / sqrt(count)
    return Estimate(mean, mean - margin, mean + margin)


def student_quantile(freedom: int) -> float:
    """The 97.5 % quantile of Student's distribution, to 0.03 (Abramowitz and Stegun 26.7.5)."""
    if freedom in _T:
        return _T[freedom]
    z = _Z
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return sum(term / float(freedom) ** power for power, term in enumerate(terms))


def sign_flip_p(changes: Sequence[float]) -> float:
    """Two-sided p-value of the mean of paired differences, by flipping their signs.

    Exact for few differences. For more the sum of flipped differences is taken as normal, with
    its true deviation; where all differences are as large this is McNemar's test.
    """
    moved = [change for change in changes if change != 0]
    total = abs(sum(moved))
    if not moved:
        return 1.0
    if len(moved) > _EXACT_ROWS:
        return erfc(total / sqrt(2 * sum(change**2 for change in moved)))
    sums = [0.0]
    for change in moved:
        sums = [part + signed for part in sums for signed in (change, -change)]
    return sum(abs(part) >= total - _EQUAL for part in sums) / len(sums)


def _wilson(share: float, count: int) -> Estimate:
    """Wilson's score interval of a share (1927, JASA 22:209)."""
    weight = _Z**2 / count
    centre = (share + weight / 2) / (1 + weight)
    margin = _Z * sqrt(share * (1 - share) / count + weight / (4 * count)) / (1 + weight)
    return Estimate(share, max(0.0, centre - margin), min(1.0, centre + margin))


def _pass_at(scored: Sequence[RowResult]) -> dict[int, Estimate]:
    if not scored:
        return {}
    most = min(result.samples for result in scored)
    sizes = sorted({2**power for power in range(most.bit_length())} | {most})
    return {size: estimate([pass_at_k(result.passed, result.samples, size) for result in scored]) for size in sizes}


def _change(before: float | None, after: float | None) -> float:
    assert before is not None and after is not None
    change = after - before
    return 0.0 if abs(change) < _EQUAL else change
