"""Rules about rewards. Each checks one pattern and returns a finding or None."""

from __future__ import annotations

from strop.insight.findings import (
    CERTAIN,
    EARLY,
    FLAT,
    MOVED,
    RECENT,
    YOUNG,
    Curves,
    Evidence,
    Finding,
    Severity,
    level,
    moved,
)
from strop.insight.trend import UNSURE, Curve, Trend, noise, trend


def always_zero(run: Curves) -> Finding | None:
    """Every completion so far scored exactly 0."""
    reward, best = run["reward"], run["max_reward"]
    if len(reward) < EARLY or len(reward) * run.rollouts_per_step < CERTAIN or any(reward.values) or any(best.values):
        return None
    return Finding(
        "always_zero",
        Severity.CRITICAL,
        "Reward is always 0.0",
        "The reward function is broken, or much too strict for the model's output",
        "Open a rollout and check that the function handles the completion's format; test it on rows with their "
        "references. If it is correct, the task is too hard: give partial credit or start with easier rows",
        (level("max_reward", best),),
    )


def solved_at_once(run: Curves) -> Finding | None:
    """Full reward from the first steps."""
    reward, best = run["reward"].first(EARLY), run["max_reward"].first(EARLY)
    if len(reward) < EARLY or not best or reward.mean < 0.99 or reward.mean < 0.99 * best.mean:
        return None
    return Finding(
        "solved_at_once",
        Severity.CRITICAL,
        "Reward is at 1.0 from the start",
        "The reward function is too lenient or has a loophole",
        "Read completions with a high reward and check for reward hacking; make the reward stricter or the rows harder",
        (level("reward", reward),),
    )


def no_spread(run: Curves) -> Finding | None:
    """All completions of each group got the same reward."""
    whole = run["frac_reward_zero_std"]
    constant = whole.last(2 * EARLY)
    if len(constant) < EARLY or len(whole) * run.rollouts_per_step < CERTAIN or min(constant.values) < 1:
        return None
    if run.solved and min(whole.values) < 1:
        return None  # it had something to learn, and has learned it
    return Finding(
        "no_spread",
        Severity.CRITICAL,
        "Every group has zero reward std: all completions of a prompt get the same reward",
        "There is no gradient: the completions are identical, or the reward does not distinguish them",
        "Use prompts that the model sometimes solves, finer-grained scores, or a higher sampling temperature",
        (level("frac_reward_zero_std", constant),),
    )


def graders_failing(run: Curves) -> Finding | None:
    """Completions that could not be scored."""
    errored = run["rollouts_errored"].last(2 * EARLY)
    share = sum(errored.values) / (max(len(errored), 1) * run.rollouts_per_step)
    if share < 0.05:
        return None
    causes = {
        name.removeprefix("failures/"): sum(curve.since(errored.steps[0]).values)
        for name, curve in run.by_name.items()
        if name.startswith("failures/")
    }
    worst = max(causes, key=lambda name: causes[name], default="unknown")
    return Finding(
        "graders_failing",
        Severity.CRITICAL if share >= 0.25 else Severity.WARNING,
        f"{share:.0%} of the completions could not be scored",
        f"A reward function or its judge fails; most frequent cause: {worst}",
        "Open a failed rollout to see the traceback. The groups of failed rollouts are dropped from training",
        (level("rollouts_errored", errored),),
    )


def easy_prompts_only(run: Curves) -> Finding | None:
    """Reward rises, but no additional prompts are solved."""
    reward, solve = run["reward"], run["solve_rate"]
    if len(reward) < RECENT or len(solve) < RECENT or run.solved:
        return None  # two trends are compared: that takes longer
    rising, solving = trend(reward), trend(solve)
    if not rising.rises(MOVED * run.scale) or not solving.stays(0.05) or _climbs(solving) or solving.end > 0.9:
        return None
    return Finding(
        "easy_prompts_only",
        Severity.WARNING,
        "Solve rate is flat while average reward rises",
        "The model overfits to the easy prompts",
        "Add harder examples to the training rows, or make them more diverse",
        (moved("solve_rate", solve, solving), moved("reward", reward, rising)),
    )


def nothing_learned(run: Curves) -> Finding | None:
    """Neither reward nor solve rate has changed since the start."""
    reward, solve, constant = run["reward"], run["solve_rate"], run["frac_reward_zero_std"]
    if len(reward) < RECENT or len(solve) < RECENT or run.solved:
        return None  # a slow start is none yet
    rewards, solving = trend(reward), trend(solve)
    learned = reward.last(YOUNG).mean - reward.first(10).mean
    if not rewards.stays(FLAT * run.scale) or not solving.stays(0.05) or learned > MOVED * run.scale:
        return None
    evidence = (moved("reward", reward, rewards), moved("solve_rate", solve, solving))
    if constant and constant.last(YOUNG).mean >= 0.7:
        return Finding(
            "no_signal",
            Severity.WARNING,
            "Reward is flat and most groups have zero reward std",
            "The prompts are too hard for the model, or the scores are too coarse",
            "Use prompts closer to the model's ability, or a reward with finer-grained scores; if the model rarely "
            "succeeds, run supervised fine-tuning first",
            (evidence[0], level("frac_reward_zero_std", constant.last(YOUNG))),
        )
    return Finding(
        "nothing_learned",
        Severity.WARNING,
        "Reward and solve rate have been flat from the start",
        "The reward signal is too sparse, or the task too hard",
        "Give partial credit where possible; try a simpler task first; or raise the learning rate",
        evidence,
    )


def overfitting(run: Curves) -> Finding | None:
    """Validation reward falls while training reward does not."""
    validation = run.by_name.get("validation/reward", Curve((), ()))
    if run.young or len(validation) < 5:
        return None
    peak = _peak(validation)
    after, window = validation.since(peak), run["reward"].since(peak)
    if len(after) < 5 or len(window) < 10:
        return None
    falling, training = trend(after), trend(window)
    best, now = _around(validation, peak), after.last(3).mean
    fallen = best - now > max(MOVED * run.scale, 3 * noise(validation)) and falling.p_value < 0.1
    if not fallen or training.change < -FLAT * run.scale:
        return None
    return Finding(
        "overfitting",
        Severity.CRITICAL,
        f"Validation reward declines while training reward {'rises' if training.change > 0 else 'is flat'}",
        "Overfitting to the training rows, or reward hacking",
        f"Stop training and use the checkpoint near step {peak}; compare completions for held-out rows",
        (Evidence("validation/reward", peak, validation.steps[-1], best, now), moved("reward", window, training)),
    )


def not_generalizing(run: Curves) -> Finding | None:
    """Training reward has risen, validation reward has not."""
    validation = run.by_name.get("validation/reward", Curve((), ()))
    if len(run["reward"]) < RECENT or len(validation) < 5:
        return None
    window = run["reward"].since(validation.steps[0])
    if len(window) < YOUNG:
        return None
    rising, held = trend(window), trend(validation)
    if not rising.rises(2 * MOVED * run.scale) or not held.change < FLAT * run.scale or _climbs(held):
        return None
    return Finding(
        "not_generalizing",
        Severity.WARNING,
        "Training reward rises while validation reward stays flat or falls",
        "Overfitting, or reward hacking",
        "Read completions with a high training reward; use more varied rows; train fewer epochs",
        (moved("validation/reward", validation, held), moved("reward", window, rising)),
    )


def improving(run: Curves) -> Finding | None:
    """Training and validation reward rise."""
    validation = run.by_name.get("validation/reward", Curve((), ()))
    if run.young or len(validation) < 5:
        return None
    held, trained = trend(validation), trend(run["reward"])
    if held.change < MOVED * run.scale or held.p_value > 0.05 or not trained.rises(MOVED * run.scale):
        return None
    return Finding(
        "improving",
        Severity.GOOD,
        "Training and validation reward rise",
        "The model improves, and the improvement generalizes to held-out rows",
        "Read some completions to confirm that their quality improved, not only their score",
        (moved("validation/reward", validation, held), moved("reward", run["reward"], trained)),
    )


def _climbs(found: Trend) -> bool:
    return found.p_value < UNSURE and found.change > 0


def _peak(curve: Curve) -> int:
    """Step at the centre of the highest three consecutive values."""
    places = range(1, len(curve) - 1)
    return curve.steps[max(places, key=lambda place: sum(curve.values[place - 1 : place + 2]))]


def _around(curve: Curve, step: int) -> float:
    place = list(curve.steps).index(step)
    return Curve(curve.steps[place - 1 : place + 2], curve.values[place - 1 : place + 2]).mean
