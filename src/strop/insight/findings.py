"""Findings of the rules, and the facts about a run that rules use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from strop.insight.trend import Curve, Trend

YOUNG = 50
"""Number of first steps during which only certain findings are reported."""
EARLY = 5
"""Minimum number of steps for a certain finding."""
RECENT = 100
"""Number of last steps that count as recent."""
CERTAIN = 256
"""Minimum number of completions without any reward:

at a success rate of 1 %, this many all fail with probability 1/13.
"""
FLAT = 0.05
"""Share of the reward scale below which a change counts as flat."""
MOVED = 0.1
"""Share of the reward scale from which a change counts as a change."""


class Severity(StrEnum):
    """Severity of a finding."""

    GOOD = "good"
    """Healthy; something to check."""
    NOTICE = "notice"
    """Not an error, but a decision may be needed."""
    WARNING = "warning"
    CRITICAL = "critical"
    """Continuing the run is a waste."""


@dataclass(frozen=True)
class Evidence:
    """A metric that supports a finding."""

    metric: str
    first_step: int
    last_step: int
    before: float
    """Smoothed value at the first of these steps; the mean if the finding is about a level."""
    after: float

    def __str__(self) -> str:
        steps = f"steps {self.first_step} to {self.last_step}"
        if self.before == self.after:
            return f"{self.metric} {_shown(self.after)} over {steps}"
        return f"{self.metric} {_shown(self.before)} → {_shown(self.after)} over {steps}"


@dataclass(frozen=True)
class Finding:
    """A pattern in a run's curves."""

    rule: str
    """Name of the rule."""
    severity: Severity
    symptom: str
    cause: str
    """Likely cause."""
    action: str
    evidence: tuple[Evidence, ...]


@dataclass(frozen=True)
class Curves:
    """The metrics of a run."""

    by_name: Mapping[str, Curve]
    rollouts_per_step: int
    """Completions per step: prompts times samples."""

    @property
    def young(self) -> bool:
        """Whether there are too few steps to judge."""
        return len(self["reward"]) < YOUNG

    @property
    def newest(self) -> int:
        """Latest training step; 0 before the first."""
        steps = self["reward"].steps or self["rollouts_errored"].steps
        return steps[-1] if steps else 0

    def __getitem__(self, name: str) -> Curve:
        """Curve of a metric from step 1; empty if the run does not have the metric."""
        return self.by_name.get(name, Curve((), ())).since(1)

    def recent(self, name: str) -> Curve:
        """The recent part of a curve."""
        return self[name].since(self.newest - RECENT + 1)

    @property
    def scale(self) -> float:
        """Reward scale: from a low step to the best of each group."""
        best, usual = self["max_reward"], self["reward"]
        if not best or not usual:
            return 1.0
        top = best.quantile(0.95)
        return max(top - usual.quantile(0.05), 0.1 * abs(top), 1e-9)

    @property
    def solved(self) -> bool:
        """Whether the recent mean reward is about as high as the best rewards so far."""
        best, now = self["max_reward"], self["reward"].last(20)
        return bool(best) and bool(now) and now.mean >= best.quantile(0.95) - 0.1 * self.scale


def level(metric: str, curve: Curve) -> Evidence:
    """Evidence of a mean."""
    return Evidence(metric, curve.steps[0], curve.steps[-1], curve.mean, curve.mean)


def moved(metric: str, curve: Curve, found: Trend) -> Evidence:
    """Evidence of a trend."""
    return Evidence(metric, curve.steps[0], curve.steps[-1], found.start, found.end)


def _shown(value: float) -> str:
    return f"{value:.3g}"
