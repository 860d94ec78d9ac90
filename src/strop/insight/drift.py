"""Rules about lengths, entropy, KL divergence and gradients."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

from strop.insight.findings import FLAT, RECENT, YOUNG, Curves, Evidence, Finding, Severity, level, moved
from strop.insight.trend import Curve, Trend, trend

_LONGER = 0.35
"""Relative to the length at the start of the window."""
_SPIKE = 5.0
"""Multiple of the 90th percentile of gradient norms."""


def longer_answers(run: Curves) -> Finding | None:
    """Completions keep getting longer."""
    course = _course(run, lambda found: found.rises(_LONGER * abs(found.start)))
    if course is None:
        return None
    paid = trend(run.recent("reward")).rises(FLAT * run.scale)
    return Finding(
        "longer_answers",
        Severity.NOTICE if paid else Severity.WARNING,
        "Response lengths rise continuously",
        "The model learns to write verbose completions"
        + ("; the reward rises too, so longer completions may be useful" if paid else ""),
        "Check whether length affects the score; add a reward for conciseness, or reward only short completions",
        (moved("response_length", *course),),
    )


def shorter_answers(run: Curves) -> Finding | None:
    """Completions keep getting shorter."""
    course = _course(run, lambda found: found.falls(_LONGER * abs(found.start)))
    if course is None:
        return None
    return Finding(
        "shorter_answers",
        Severity.NOTICE,
        "Response lengths fall steadily",
        "The reward may favour short completions over good ones",
        "Check whether length affects the score and whether short completions are still complete",
        (moved("response_length", *course),),
    )


def cut_off(run: Curves) -> Finding | None:
    """Many completions reach the length limit."""
    clipped = run["response_length_clip_ratio"].last(20)
    if run.young or not clipped or clipped.mean < 0.2:
        return None
    return Finding(
        "cut_off",
        Severity.WARNING,
        f"{clipped.mean:.0%} of the completions are truncated at the length limit",
        "The limit is too low for the task, or completions are too verbose",
        "Raise sampling.max_completion_tokens if correct completions need that length; otherwise reward brevity",
        (level("response_length_clip_ratio", clipped),),
    )


def collapse(run: Curves) -> Finding | None:
    """Completions become alike before the task is solved."""
    entropy, spread = run["entropy"], run["reward_group_std"]
    if run.young or len(entropy) < YOUNG or not spread or run.solved:
        return None
    both = (("entropy", entropy), ("reward_group_std", spread))
    narrowed = [(name, curve.first(20), curve.last(20)) for name, curve in both]
    if any(after.mean > 0.5 * before.mean for _, before, after in narrowed):
        return None
    if trend(run["reward"].last(YOUNG)).rises(FLAT * run.scale):
        return None
    return Finding(
        "collapse",
        Severity.WARNING,
        "Entropy and the reward std within groups fall quickly",
        "Completions become alike, so training stalls (entropy collapse)",
        "Use finer-grained scores, or a higher sampling temperature or KL coefficient",
        tuple(Evidence(n, a.steps[0], b.steps[-1], a.mean, b.mean) for n, a, b in narrowed),
    )


def drift(run: Curves) -> Finding | None:
    """KL rises while the reward does not."""
    kl, reward = run.recent("kl_loss"), run.recent("reward")
    if run.young or len(kl) < YOUNG:
        return None
    away, paid = trend(kl), trend(reward)
    if away.end < 0.02 or not away.rises(max(0.01, 0.2 * away.start)) or not paid.stays(FLAT * run.scale):
        return None
    return Finding(
        "drift",
        Severity.WARNING,
        "KL loss rises while reward stays flat",
        "The policy drifts from the reference model without improving",
        "Use a higher train.kl_coefficient or LoRA in the next run, or stop if the reward has converged",
        (moved("kl_loss", kl, away), moved("reward", reward, paid)),
    )


def spikes(run: Curves) -> Finding | None:
    """Occasional gradient spikes."""
    norms = run.recent("grad_norm")
    if run.young or len(norms) < YOUNG:
        return None
    # Not the median: where most groups are constant, as at the end, most gradients are tiny.
    usual = max(norms.quantile(0.9), run["grad_norm"].quantile(0.9))
    large = [(step, value) for step, value in zip(norms.steps, norms.values, strict=True) if value > _SPIKE * usual]
    if usual <= 0 or len(large) < 3:
        return None
    highest = max(value for _, value in large)
    return Finding(
        "spikes",
        Severity.WARNING,
        f"Gradient norm has {len(large)} spikes in {len(norms)} steps",
        "Training is unstable",
        "Lower train.learning_rate or train.max_grad_norm; check the rollouts of these steps: "
        + ", ".join(str(step) for step, _ in large[-5:]),
        (Evidence("grad_norm", large[0][0], large[-1][0], usual, highest),),
    )


def best_falls(run: Curves) -> Finding | None:
    """The best completion of each group gets worse."""
    best = run.recent("max_reward")
    if run.young or len(best) < YOUNG:
        return None
    course = trend(best)
    if not course.falls(0.15 * run.scale):
        return None
    return Finding(
        "best_falls",
        Severity.WARNING,
        "Max reward decreases",
        "The model loses good behaviour that it had, or generalizes poorly",
        "Lower train.learning_rate, raise train.kl_coefficient, or go back to an earlier checkpoint",
        (moved("max_reward", best, course),),
    )


def saturated(run: Curves) -> Finding | None:
    """The reward has converged."""
    reward, solve = run["reward"], run["solve_rate"]
    if len(reward) < 2 * RECENT or not solve:
        return None
    now, solving = trend(reward.last(RECENT)), trend(solve.last(RECENT))
    learned = reward.last(RECENT).mean - reward.first(20).mean
    if learned < 0.2 * run.scale or not now.stays(0.02 * run.scale) or not solving.stays(0.02):
        return None
    return Finding(
        "saturated",
        Severity.NOTICE,
        "Reward and solve rate have plateaued",
        "The model has learned what these rows can teach",
        "Stop, or continue with harder rows; if the validation reward does not improve within 100 steps, use the "
        "earlier checkpoint",
        (moved("reward", reward.last(RECENT), now),),
    )


def samplers_differ(run: Curves) -> Finding | None:
    """Sampler and trainer log-probabilities differ."""
    gap = run["sampler_trainer_gap"].last(20)
    if len(gap) < 10 or median(gap.values) < 0.1:
        return None
    return Finding(
        "samplers_differ",
        Severity.WARNING,
        "Sampler and trainer disagree about log-probabilities",
        "The sampler uses older weights, or its precision is too low",
        "Train with full precision or LoRA. If the gap stays above 0.1, report a bug",
        (level("sampler_trainer_gap", gap),),
    )


def _course(run: Curves, matters: Callable[[Trend], bool]) -> tuple[Curve, Trend] | None:
    """A recent or overall length trend that is large enough and still continues."""
    lengths, late = run["response_length"], run.recent("response_length").last(YOUNG)
    if run.young or len(lengths) < YOUNG:
        return None
    going = trend(late)
    for curve in (run.recent("response_length"), lengths):
        found = trend(curve)
        if matters(found) and going.change * found.change > 0 and abs(going.change) > 0.05 * abs(going.start):
            return curve, found
    return None
