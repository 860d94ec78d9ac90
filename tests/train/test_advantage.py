"""Advantages, worked by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strop.train.advantage import ADVANTAGES, by_batch, by_group, unscaled

rewards = st.floats(-100, 100, allow_nan=False)


def test_by_group_divides_by_the_deviation_of_each_group() -> None:
    # Means 0.5 and 2; deviations of a sample sqrt(4 * 0.25 / 3) and sqrt(8 / 3).
    first, second = by_group([[0.0, 0.0, 1.0, 1.0], [0.0, 2.0, 2.0, 4.0]])
    scale = math.sqrt(1 / 3) + 1e-4
    assert first == pytest.approx([-0.5 / scale, -0.5 / scale, 0.5 / scale, 0.5 / scale])
    scale = math.sqrt(8 / 3) + 1e-4
    assert second == pytest.approx([-2 / scale, 0, 0, 2 / scale])


def test_by_batch_divides_by_the_deviation_of_all_rewards() -> None:
    # All six rewards have mean 2 and squared deviations 4 + 1 + 0 + 0 + 1 + 4 = 10.
    first, second = by_batch([[0.0, 1.0, 2.0], [2.0, 3.0, 4.0]])
    scale = math.sqrt(10 / 5) + 1e-4
    assert first == pytest.approx([-1 / scale, 0, 1 / scale])
    assert second == pytest.approx([-1 / scale, 0, 1 / scale])


def test_unscaled_is_the_plain_deviation_from_the_group_mean() -> None:
    assert unscaled([[0.0, 1.0, 5.0], [3.0, 3.0, 6.0]]) == [[-2.0, -1.0, 3.0], [-1.0, -1.0, 2.0]]


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
@pytest.mark.parametrize("reward", [0.0, 0.1, 0.7, 1e9, -1 / 3])
def test_equal_rewards_have_advantages_of_exactly_zero(scale: str, reward: float) -> None:
    # 0.1 is such that the rounded mean of three of them is another number.
    for count in (2, 3, 7, 8):
        advantages, _ = ADVANTAGES[scale]([[reward] * count, [0.0, 1.0]])
        assert advantages == [0.0] * count


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_no_groups_have_no_advantages(scale: str) -> None:
    assert ADVANTAGES[scale]([]) == []


def test_nearly_equal_rewards_are_not_blown_up() -> None:
    (advantages,) = by_group([[0.5, 0.5 + 1e-9]])
    assert max(map(abs, advantages)) < 1e-4


@given(groups=st.lists(st.lists(rewards, min_size=2, max_size=8), min_size=1, max_size=4))
def test_advantages_sum_to_zero_and_keep_the_order_of_the_rewards(groups: list[list[float]]) -> None:
    for name, scale in ADVANTAGES.items():
        for rewards_G, advantages_G in zip(groups, scale(groups), strict=True):
            assert sum(advantages_G) == pytest.approx(0, abs=1e-6), name
            ranked = sorted(zip(rewards_G, advantages_G, strict=True))
            assert [advantage for _, advantage in ranked] == sorted(advantages_G), name


@given(rewards_G=st.lists(rewards, min_size=2, max_size=8), shift=st.sampled_from([-8.0, 0.5, 64.0]))
def test_a_constant_added_to_all_rewards_changes_nothing(rewards_G: list[float], shift: float) -> None:
    for name, scale in ADVANTAGES.items():
        moved = scale([[reward + shift for reward in rewards_G]])[0]
        assert moved == pytest.approx(scale([rewards_G])[0], abs=1e-6), name
