"""Figures about evaluations, worked by hand."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from train_cases import failed_group, group

from strop.evals.report import (
    Comparison,
    Estimate,
    Report,
    RowResult,
    compare,
    estimate,
    report,
    row_result,
    sign_flip_p,
    student_quantile,
)
from strop.types import Group


def reported(*groups: Group) -> Report:
    return report([row_result(group, threshold=1.0) for group in groups])


def compared(before: list[Group], after: list[Group]) -> Comparison:
    found = compare([row_result(group, 1.0) for group in before], [row_result(group, 1.0) for group in after])
    assert found is not None
    return found


def test_a_mean_has_the_interval_of_student() -> None:
    # Deviation of 0.2, 0.4, 0.6, 0.8: sqrt(0.2 / 3) = 0.2582; three degrees of freedom: 3.182.
    found = estimate([0.2, 0.4, 0.6, 0.8])
    assert found.mean == pytest.approx(0.5)
    assert found.low == pytest.approx(0.5 - 3.182 * 0.2582 / 2, abs=0.005)
    assert found.high == pytest.approx(0.5 + 3.182 * 0.2582 / 2, abs=0.005)
    assert str(Estimate(0.5, 0.25, 0.75)) == "0.500 [0.250, 0.750]"


@pytest.mark.parametrize(
    ("freedom", "quantile"), [(1, 12.706), (2, 4.303), (3, 3.182), (5, 2.571), (10, 2.228), (30, 2.042), (1000, 1.962)]
)
def test_quantiles_are_those_of_the_tables(freedom: int, quantile: float) -> None:
    assert student_quantile(freedom) == pytest.approx(quantile, abs=0.03)


def test_shares_have_the_interval_of_wilson() -> None:
    # 8 of 10, the textbook case: 0.490 to 0.943.
    found = estimate([1.0] * 8 + [0.0] * 2)
    assert found.mean == 0.8
    assert found.low == pytest.approx(0.4902, abs=1e-4)
    assert found.high == pytest.approx(0.9433, abs=1e-4)


def test_twenty_passes_of_twenty_are_no_proof_of_perfection() -> None:
    found = estimate([1.0] * 20)
    assert (found.mean, found.high) == (1.0, 1.0)
    assert found.low == pytest.approx(20 / (20 + 1.96**2), abs=1e-3)


def test_a_single_row_has_no_interval() -> None:
    assert estimate([0.25]) == Estimate(0.25, None, None)
    assert estimate([1.0]) == Estimate(1.0, None, None)
    assert str(estimate([0.25])) == "0.250"


def test_intervals_hold_the_true_mean_as_often_as_they_say() -> None:
    draw = random.Random(0)
    held = 0
    for _ in range(1000):
        found = estimate([draw.random() for _ in range(8)])
        assert found.low is not None
        assert found.high is not None
        held += found.low <= 0.5 <= found.high
    assert 0.93 <= held / 1000 <= 0.97


def test_rows_are_the_draws_and_not_their_samples() -> None:
    # Three rows, however many samples: the second sample of a row says little that is new.
    few = reported(*(group(reward, reward, number=number) for number, reward in enumerate((0.0, 0.5, 1.0))))
    many = reported(*(group(*[reward] * 50, number=number) for number, reward in enumerate((0.0, 0.5, 1.0))))
    assert few.reward == many.reward


def test_a_row_has_the_mean_of_its_samples_and_counts_those_that_pass() -> None:
    assert row_result(group({"form": 1.0, "fact": 0.0}, {"form": 1.0, "fact": 1.0}), threshold=1.5) == RowResult(
        "row-1", 1.5, passed=1, samples=2, components={"form": 1.0, "fact": 0.5}
    )


def test_a_row_with_a_failed_sample_has_no_reward_and_is_in_no_figure() -> None:
    assert row_result(failed_group(number=2), threshold=0.5).reward is None
    found = reported(group(1.0, number=1), failed_group(number=2), group(0.0, number=3))
    assert (found.rows, found.scored) == (3, 2)
    assert found.reward is not None
    assert found.reward.mean == 0.5


def test_without_a_scored_row_there_are_no_figures() -> None:
    assert reported(failed_group()) == Report(1, 0, None, {}, {})


def test_pass_at_k_is_a_mean_over_rows_with_an_interval() -> None:
    # Rows with 0, 1 and 2 of 2 passing: pass@1 is 0, 1/2, 1; pass@2 is 0, 1, 1.
    found = reported(group(0.0, 0.0, number=1), group(1.0, 0.0, number=2), group(1.0, 1.0, number=3))
    assert set(found.pass_at) == {1, 2}
    assert found.pass_at[1] == estimate([0.0, 0.5, 1.0])
    assert found.pass_at[2] == estimate([0.0, 1.0, 1.0])


def test_components_have_intervals_of_their_own() -> None:
    found = reported(*(group({"form": 1.0, "fact": fact}, number=n) for n, fact in enumerate((0.1, 0.2, 0.3))))
    assert found.components == {"form": estimate([1.0] * 3), "fact": estimate([0.1, 0.2, 0.3])}


def test_a_comparison_goes_row_by_row() -> None:
    before = [group(reward, number=n) for n, reward in enumerate((0.0, 0.5, 1.0, 0.3))]
    after = [group(reward, number=n) for n, reward in enumerate((0.4, 0.9, 0.8, 0.3))]
    found = compared(before, after)
    assert found.before.mean == pytest.approx(0.45)
    assert found.after.mean == pytest.approx(0.6)
    assert found.change.mean == pytest.approx(0.15)
    assert (found.better, found.worse, found.equal) == (2, 1, 1)
    # Of the 8 patterns of signs of 0.4, 0.4, 0.2, four have a sum of 0.6 or more: +++, ++-, and their opposites.
    assert found.p_value == 0.5


def test_the_change_of_passes_and_components_is_paired_too() -> None:
    before = [group({"form": 1.0, "fact": 0.0}, {"form": 0.0, "fact": 0.0}, number=n) for n in range(2)]
    after = [group({"form": 1.0, "fact": 0.5}, {"form": 1.0, "fact": 0.0}, number=n) for n in range(2)]
    found = compared(before, after)
    assert found.pass_change == Estimate(0.5, 0.5, 0.5)
    assert {name: change.mean for name, change in found.components.items()} == {"form": 0.5, "fact": 0.25}


def test_paired_differences_are_surer_than_the_two_means() -> None:
    before = [group(reward, number=number) for number, reward in enumerate((0.0, 0.3, 0.6, 0.9))]
    after = [group(reward + 0.1, number=number) for number, reward in enumerate((0.0, 0.3, 0.6, 0.9))]
    found = compared(before, after)
    assert found.change.low == pytest.approx(0.1)
    assert found.before.low is not None
    assert found.before.low < 0


def test_rows_that_one_side_could_not_score_are_left_out_of_both() -> None:
    before = [group(0.0, number=1), group(1.0, number=2), failed_group(number=3)]
    after = [group(0.5, number=1), failed_group(number=2), group(1.0, number=3)]
    found = compared(before, after)
    assert (found.rows, found.before.mean, found.after.mean, found.change.mean) == (1, 0.0, 0.5, 0.5)


def test_other_rows_cannot_be_compared() -> None:
    assert compare([row_result(group(1.0, number=1), 1.0)], [row_result(group(1.0, number=2), 1.0)]) is None


def test_the_same_answers_differ_by_nothing() -> None:
    groups = [group(0.1 + 0.2, number=1), group(1.0, number=2)]
    found = compared(groups, [group(0.3, number=1), group(1.0, number=2)])
    assert (found.better, found.worse, found.equal, found.p_value) == (0, 0, 2, 1.0)


def test_five_better_rows_of_five_are_the_least_that_can_be_told_from_chance() -> None:
    assert sign_flip_p([1.0] * 5) == 2 / 2**5
    assert sign_flip_p([1.0] * 6) == 2 / 2**6
    assert sign_flip_p([-1.0] * 6) == 2 / 2**6


def test_many_differences_of_one_size_make_mcnemars_test() -> None:
    # 30 rows better, 12 worse: (30 - 12)² / 42 = 7.71 of one degree of freedom, p = 0.0055.
    assert sign_flip_p([1.0] * 30 + [-1.0] * 12) == pytest.approx(0.0055, abs=1e-4)


@given(st.lists(st.integers(-50, 50).filter(bool), min_size=1, max_size=9))
def test_flipping_tries_every_pattern_of_signs(changes: list[int]) -> None:
    sums = [abs(sum(signs)) for signs in itertools.product(*((change, -change) for change in changes))]
    assert sign_flip_p(changes) == sum(found >= abs(sum(changes)) for found in sums) / 2 ** len(changes)


def test_the_normal_form_is_close_to_trying_every_pattern() -> None:
    draw = random.Random(1)
    changes = [draw.gauss(0.5, 1) for _ in range(17)]
    total = abs(sum(changes))
    flips = [sum(change * draw.choice((-1, 1)) for change in changes) for _ in range(20_000)]
    assert sign_flip_p(changes) == pytest.approx(sum(abs(f) >= total for f in flips) / 20_000, abs=0.02)


def test_alike_models_are_called_different_as_rarely_as_promised() -> None:
    draw = random.Random(2)
    alarms = sum(sign_flip_p([draw.choice((-1, 0, 1)) * draw.random() for _ in range(30)]) < 0.05 for _ in range(500))
    assert alarms / 500 < 0.08
    assert math.isclose(sign_flip_p([0.0] * 20), 1.0)
