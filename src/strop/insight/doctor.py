"""Warning signs in a run's curves, each with evidence, likely cause and advice.

The rules follow the pattern tables of hosted services, with strop's own thresholds. During the first steps only
certain findings are reported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from strop.insight import drift, rules
from strop.insight.findings import Curves, Finding, Severity

METRICS = (
    "reward",
    "max_reward",
    "solve_rate",
    "reward_group_std",
    "frac_reward_zero_std",
    "rollouts_errored",
    "response_length",
    "response_length_clip_ratio",
    "entropy",
    "kl_loss",
    "grad_norm",
    "sampler_trainer_gap",
    "validation/reward",
)
"""Metrics that the rules use, in addition to `failures/…`."""

RULES: tuple[Callable[[Curves], Finding | None], ...] = (
    rules.always_zero,
    rules.solved_at_once,
    rules.no_spread,
    rules.graders_failing,
    rules.overfitting,
    rules.not_generalizing,
    rules.easy_prompts_only,
    rules.nothing_learned,
    drift.collapse,
    drift.drift,
    drift.longer_answers,
    drift.cut_off,
    drift.best_falls,
    drift.spikes,
    drift.samplers_differ,
    drift.shorter_answers,
    drift.saturated,
    rules.improving,
)

_EXPLAINS: Mapping[str, frozenset[str]] = {
    "always_zero": frozenset({"no_spread", "no_signal", "nothing_learned", "drift"}),
    "solved_at_once": frozenset({"no_spread", "no_signal", "nothing_learned", "drift"}),
    "no_spread": frozenset({"no_signal", "nothing_learned", "collapse", "drift"}),
    "overfitting": frozenset({"not_generalizing", "saturated"}),
}
"""Findings that are hidden by a more certain finding."""

_ORDER = (Severity.CRITICAL, Severity.WARNING, Severity.NOTICE, Severity.GOOD)


def diagnose(run: Curves) -> list[Finding]:
    """Findings about a run, most severe first. Empty if the run is healthy or has too few steps."""
    found = [finding for rule in RULES if (finding := rule(run)) is not None]
    explained = frozenset[str]().union(*(_EXPLAINS.get(finding.rule, frozenset()) for finding in found))
    return sorted(
        (finding for finding in found if finding.rule not in explained),
        key=lambda finding: _ORDER.index(finding.severity),
    )
