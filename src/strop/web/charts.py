"""Which charts there are, by the names and in the order that the documentation of training uses."""

from __future__ import annotations

from collections.abc import Sequence

from strop.web.components import Chart, ChartGroup

OVERVIEW = (
    Chart("Average reward", "reward", "validation/reward", "mean over all rollouts of a step"),
    Chart(
        "Response lengths",
        "response_length",
        "validation/response_length",
        "tokens per completion; steady or falling is healthy",
    ),
    Chart("Max reward", "max_reward", "validation/max_reward", "mean over prompts of the best attempt"),
    Chart("Solve rate", "solve_rate", "validation/solve_rate", "prompts with a reward other than 0 in any attempt"),
)
ROLLOUTS = (
    Chart("Reward", "reward", "validation/reward"),
    Chart("Response lengths", "response_length", "validation/response_length"),
    Chart("KL divergence", "kl_loss", hint="from the model that training started from"),
    Chart("Advantages", "advantages", hint="mean over the batch; close to 0 by construction"),
    Chart("Reward std within groups", "reward_group_std", hint="near 0 means little to learn from"),
    Chart("Zero-std groups", "frac_reward_zero_std", hint="all attempts got the same reward"),
    Chart("Response length clip ratio", "response_length_clip_ratio"),
    Chart("Failed rollouts", "rollouts_errored"),
)
TRAINING = (
    Chart("Loss", "loss"),
    Chart("Entropy", "entropy", "validation/entropy"),
    Chart("Gradient norm", "grad_norm"),
    Chart("Learning rate", "learning_rate"),
    Chart("Sampler–trainer gap", "sampler_trainer_gap", hint="mean difference of log-probabilities"),
    Chart("Tokens per second", "tokens_per_second"),
)


def component_groups(components: Sequence[str]) -> list[ChartGroup]:
    """A section for each reward component, closed until it is asked for."""
    return [
        ChartGroup(
            f"Reward: {name}",
            (
                Chart("Mean", f"reward/{name}", f"validation/reward/{name}"),
                Chart("Max", f"max_reward/{name}", f"validation/max_reward/{name}"),
                Chart("Solve rate", f"solve_rate/{name}", f"validation/solve_rate/{name}"),
            ),
            open=False,
        )
        for name in components
    ]


def rollout_groups(components: Sequence[str]) -> list[ChartGroup]:
    """All charts of a run."""
    return [ChartGroup("Rollouts", ROLLOUTS), ChartGroup("Training", TRAINING), *component_groups(components)]
