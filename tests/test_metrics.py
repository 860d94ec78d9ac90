"""Every metric, from groups made by hand."""

from __future__ import annotations

import itertools
import math
from statistics import fmean, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st
from train_cases import failed_group, group, rollout, row, text_rollout

from strop.metrics import group_metrics, mean_advantage, pass_at_k, pass_metrics, prefixed
from strop.types import Group, Rollout, StopReason


def test_reward_is_the_mean_over_all_scored_rollouts() -> None:
    assert group_metrics([group(0.0, 1.0, 0.5, 0.5), group(1.0, 0.0, 0.0, 0.0)])["reward"] == 0.375


def test_max_reward_is_the_mean_of_the_best_of_each_group() -> None:
    assert group_metrics([group(0.0, 0.75), group(-1.0, -0.5), group(1.0, 0.25)])["max_reward"] == (0.75 - 0.5 + 1) / 3


def test_solve_rate_is_the_share_of_prompts_with_any_reward_but_zero() -> None:
    groups = [group(0.0, 0.0), group(0.0, 0.2), group(1.0, 1.0), group(-0.5, 0.0)]
    assert group_metrics(groups)["solve_rate"] == 0.75


def test_group_deviation_is_that_of_a_sample_in_the_mean() -> None:
    metrics = group_metrics([group(0.0, 1.0), group(2.0, 2.0)])
    assert metrics["reward_group_std"] == pytest.approx(math.sqrt(0.5) / 2)


def test_a_group_of_one_has_no_deviation() -> None:
    metrics = group_metrics([group(0.3)])
    assert (metrics["reward_group_std"], metrics["frac_reward_zero_std"]) == (0.0, 1.0)


def test_groups_of_equal_rewards_are_counted() -> None:
    # 0.1 three times has a deviation that is not exactly zero in floats: equal is equal.
    assert group_metrics([group(0.1, 0.1, 0.1), group(0.1, 0.2, 0.1)])["frac_reward_zero_std"] == 0.5


def test_components_have_the_same_three_numbers() -> None:
    groups = [
        group({"form": 1.0, "fact": 0.0}, {"form": 0.5, "fact": 0.0}),
        group({"form": 0.0, "fact": 0.0}, {"form": 0.0, "fact": 1.0}),
    ]
    metrics = group_metrics(groups)
    assert (metrics["reward/form"], metrics["max_reward/form"], metrics["solve_rate/form"]) == (0.375, 0.5, 0.5)
    assert (metrics["reward/fact"], metrics["max_reward/fact"], metrics["solve_rate/fact"]) == (0.25, 0.5, 0.5)


def test_a_component_counts_only_where_it_is() -> None:
    groups = [group({"a": 1.0}, {"a": 0.0, "b": 0.5}), group({"a": 1.0}, {"a": 1.0})]
    metrics = group_metrics(groups)
    assert (metrics["reward/b"], metrics["max_reward/b"], metrics["solve_rate/b"]) == (0.5, 0.5, 1.0)
    assert metrics["reward/a"] == 0.75


def test_a_failed_group_counts_in_no_reward() -> None:
    with_failure = group_metrics([group(0.0, 1.0), failed_group()])
    alone = group_metrics([group(0.0, 1.0)])
    rewards = [name for name in alone if "reward" in name or "solve" in name]
    assert rewards
    assert {name: with_failure[name] for name in rewards} == {name: alone[name] for name in rewards}


def test_without_a_scored_group_there_is_no_reward_rather_than_zero() -> None:
    metrics = group_metrics([failed_group()])
    assert not [name for name in metrics if name.startswith(("reward", "max_reward", "solve_rate", "frac_"))]
    assert metrics["rollouts_errored"] == 1


def test_failed_rollouts_are_counted_by_cause() -> None:
    metrics = group_metrics([failed_group("timeout"), failed_group("nan"), failed_group("timeout"), group(1.0)])
    found = {name: value for name, value in metrics.items() if name.startswith(("rollouts_errored", "failures"))}
    assert found == {"rollouts_errored": 3.0, "failures/timeout": 2, "failures/nan": 1}


def test_no_failures_are_a_count_of_zero() -> None:
    assert group_metrics([group(1.0)])["rollouts_errored"] == 0.0


def lengthy(*rollouts: tuple[int, StopReason, float]) -> Group:
    made = tuple(
        rollout([5] * length, reward=1.0, stop_reason=reason, entropy=entropy, index=index)
        for index, (length, reason, entropy) in enumerate(rollouts)
    )
    return Group(row(), made)


def test_lengths_count_tokens_and_how_many_were_cut_off() -> None:
    metrics = group_metrics(
        [lengthy((3, StopReason.STOP, 0.0), (8, StopReason.LENGTH, 0.0), (1, StopReason.STOP, 0.0))]
    )
    assert metrics["response_length"] == 4.0
    assert metrics["response_length_clip_ratio"] == pytest.approx(1 / 3)


def test_tokens_between_the_sampled_ones_are_no_part_of_the_length() -> None:
    between = rollout([5, 6, 7, 8], mask=[True, False, False, True], reward=1.0)
    assert group_metrics([Group(row(), (between,))])["response_length"] == 2.0


def test_failed_groups_have_a_length_too() -> None:
    assert group_metrics([failed_group()])["response_length"] == 1.0


def test_entropy_is_the_mean_over_tokens_and_not_over_rollouts() -> None:
    metrics = group_metrics([lengthy((1, StopReason.STOP, 2.0), (3, StopReason.STOP, 1.0))])
    assert metrics["entropy"] == pytest.approx((1 * 2.0 + 3 * 1.0) / 4)


def test_every_metric_is_a_finite_number() -> None:
    for groups in ([group(0.0, 1.0), failed_group()], [failed_group()]):
        assert all(math.isfinite(value) for value in group_metrics(groups).values())


def test_the_mean_advantage_is_over_scored_rollouts() -> None:
    assert mean_advantage([[1.0, -1.0], [], [2.0, 0.0]]) == {"advantages": 0.5}
    assert mean_advantage([[], []]) == {}


@given(outcomes=st.lists(st.booleans(), min_size=1, max_size=8), data=st.data())
def test_pass_at_k_is_the_share_of_draws_with_a_pass(outcomes: list[bool], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(outcomes)))
    draws = list(itertools.combinations(outcomes, k))
    assert pass_at_k(sum(outcomes), len(outcomes), k) == pytest.approx(fmean(any(draw) for draw in draws))


def test_pass_metrics_count_rewards_from_the_threshold_on() -> None:
    metrics = pass_metrics([group(1.0, 0.99, 0.0, 0.0), group(1.5, 1.0, 1.0, 1.0)], threshold=1.0)
    assert metrics == {"pass@1": (0.25 + 1) / 2, "pass@2": (0.5 + 1) / 2, "pass@4": 1.0}


def test_pass_metrics_go_by_powers_of_two_up_to_the_number_of_samples() -> None:
    assert list(pass_metrics([group(*[0.0] * 6)], 1.0)) == ["pass@1", "pass@2", "pass@4", "pass@6"]
    assert list(pass_metrics([group(0.0)], 1.0)) == ["pass@1"]


def test_pass_metrics_leave_failed_groups_out() -> None:
    assert pass_metrics([group(1.0, 0.0), failed_group()], 1.0) == {"pass@1": 0.5, "pass@2": 1.0}
    assert pass_metrics([failed_group()], 1.0) == {}


def test_a_prefix_goes_in_front_of_every_name() -> None:
    assert prefixed("validation/", {"reward": 1.0, "reward/form": 0.5}) == {
        "validation/reward": 1.0,
        "validation/reward/form": 0.5,
    }


rewards = st.lists(st.floats(-10, 10), min_size=2, max_size=6)


@given(rewards_NG=st.lists(rewards, min_size=1, max_size=5))
def test_totals_agree_with_plain_statistics(rewards_NG: list[list[float]]) -> None:
    metrics = group_metrics([group(*rewards_G) for rewards_G in rewards_NG])
    assert metrics["reward"] == pytest.approx(fmean(r for rewards_G in rewards_NG for r in rewards_G))
    assert metrics["max_reward"] == pytest.approx(fmean(max(rewards_G) for rewards_G in rewards_NG))
    assert metrics["reward_group_std"] == pytest.approx(fmean(map(stdev, rewards_NG)))
    if len({len(rewards_G) for rewards_G in rewards_NG}) == 1:  # otherwise larger groups weigh more in the mean
        assert metrics["reward"] <= metrics["max_reward"] + 1e-9


def outside(tokens: int, failed: bool = False) -> Rollout:
    """What an outside model's server tells of an answer, or that it told nothing."""
    return text_rollout(tokens, None if failed else 1.0, "connection" if failed else None)


def test_lengths_of_outside_models_are_those_their_server_counted() -> None:
    metrics = group_metrics([Group(row(), (outside(10), outside(20)))])
    assert metrics["response_length"] == 15
    assert "entropy" not in metrics


def test_an_answer_that_never_came_is_not_an_answer_of_no_tokens() -> None:
    metrics = group_metrics([Group(row(), (outside(10), outside(0, failed=True)))])
    assert metrics["response_length"] == 10
    assert metrics["failures/connection"] == 1
    assert "response_length" not in group_metrics([Group(row(), (outside(0, failed=True),))])
