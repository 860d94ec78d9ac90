"""Figures about evaluations, worked by hand."""

from __future__ import annotations

import math

import pytest
from train_cases import failed_group, group

from strop.evals.report import Estimate, compare, estimate, row_means


def test_a_mean_has_a_margin_of_two_standard_errors() -> None:
    # Deviations 1 and 1 of a sample of 4: sqrt(4 * 0.25 / 3) / sqrt(4) = 0.2887
    found = estimate([0.0, 1.0, 0.0, 1.0])
    assert found.mean == 0.5
    assert found.margin == pytest.approx(1.96 * math.sqrt(1 / 3) / 2)
    assert str(found) == "0.500 ± 0.566"


def test_a_single_row_has_no_margin() -> None:
    assert estimate([0.25]) == Estimate(0.25, None)
    assert str(estimate([0.25])) == "0.250"


def test_rows_are_the_draws_and_not_their_samples() -> None:
    # Two rows, however many samples: the second sample of a row says little that is new.
    few = estimate(list(row_means([group(0.0, 0.0, number=1), group(1.0, 1.0, number=2)]).values()))
    many = estimate(list(row_means([group(*[0.0] * 50, number=1), group(*[1.0] * 50, number=2)]).values()))
    assert few == many


def test_the_mean_of_a_row_is_that_of_its_samples_and_failed_rows_have_none() -> None:
    assert row_means([group(0.0, 1.0, number=1), failed_group(number=2)]) == {"row-1": 0.5}


def test_a_comparison_goes_row_by_row() -> None:
    before = [group(0.0, number=1), group(0.5, number=2), group(1.0, number=3)]
    after = [group(0.4, number=1), group(0.9, number=2), group(0.8, number=3)]
    found = compare(before, after)
    assert found.before.mean == pytest.approx(0.5)
    assert found.after.mean == pytest.approx(0.7)
    assert found.change.mean == pytest.approx(0.2)
    assert (found.better, found.worse) == (2, 1)


def test_paired_differences_are_surer_than_the_two_means() -> None:
    before = [group(reward, number=number) for number, reward in enumerate((0.0, 0.3, 0.6, 0.9))]
    after = [group(reward + 0.1, number=number) for number, reward in enumerate((0.0, 0.3, 0.6, 0.9))]
    found = compare(before, after)
    assert found.change.margin == pytest.approx(0.0, abs=1e-9)
    assert found.before.margin is not None
    assert found.before.margin > 0.3


def test_rows_that_one_side_could_not_score_are_left_out_of_both() -> None:
    before = [group(0.0, number=1), group(1.0, number=2), failed_group(number=3)]
    after = [group(0.5, number=1), failed_group(number=2), group(1.0, number=3)]
    found = compare(before, after)
    assert (found.before.mean, found.after.mean, found.change.mean) == (0.0, 0.5, 0.5)
