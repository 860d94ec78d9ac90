"""What a rule says about a run, and what it is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from strop.insight.trend import Curve, Trend

YOUNG = 50
"""Steps within which rewards fluctuate and nothing is judged but what is certain."""
EARLY = 5
"""Steps after which the certain is certain."""
RECENT = 100
"""Steps that count as now."""
CERTAIN = 256
"""Answers of which not one was rewarded: with 1 right in 100, so many are all wrong once in 13 times."""
FLAT = 0.05
"""Of the scale of rewards: what moves by less has not moved."""
MOVED = 0.1
"""Of the scale of rewards: what moves by as much has."""


class Severity(StrEnum):
    """How much a finding matters."""

    GOOD = "good"
    """As it should be; there is still something to check."""
    NOTICE = "notice"
    """Nothing is wrong, but a decision may be due."""
    WARNING = "warning"
    CRITICAL = "critical"
    """Further training is wasted."""


@dataclass(frozen=True)
class Evidence:
    """A metric that a finding rests on."""

    metric: str
    first_step: int
    last_step: int
    before: float
    """At the first of these steps, noise taken out; the mean where the finding is about a level."""
    after: float

    def __str__(self) -> str:
        steps = f"steps {self.first_step} to {self.last_step}"
        if self.before == self.after:
            return f"{self.metric} {_shown(self.after)} over {steps}"
        return f"{self.metric} {_shown(self.before)} → {_shown(self.after)} over {steps}"


@dataclass(frozen=True)
class Finding:
    """A pattern in the curves of a run."""

    rule: str
    """Name of the rule."""
    severity: Severity
    symptom: str
    cause: str
    """The likely one."""
    action: str
    evidence: tuple[Evidence, ...]


@dataclass(frozen=True)
class Curves:
    """The metrics of a run."""

    by_name: Mapping[str, Curve]
    rollouts_per_step: int
    """Prompts times samples."""

    @property
    def young(self) -> bool:
        """Whether it is too early to judge."""
        return len(self["reward"]) < YOUNG

    @property
    def newest(self) -> int:
        """The newest training step; 0 before the first."""
        steps = self["reward"].steps or self["rollouts_errored"].steps
        return steps[-1] if steps else 0

    def __getitem__(self, name: str) -> Curve:
        """The curve of a metric from step 1 on, empty for one that the run does not have."""
        return self.by_name.get(name, Curve((), ())).since(1)

    def recent(self, name: str) -> Curve:
        """The end of a curve."""
        return self[name].since(self.newest - RECENT + 1)

    @property
    def scale(self) -> float:
        """What a difference in reward is measured by: from a poor step to the best of each group."""
        best, usual = self["max_reward"], self["reward"]
        if not best or not usual:
            return 1.0
        top = best.quantile(0.95)
        return max(top - usual.quantile(0.05), 0.1 * abs(top), 1e-9)

    @property
    def solved(self) -> bool:
        """Whether an average answer now is about as good as the best have ever been."""
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
