"""Trends: known slopes, outliers, and how often noise is called a trend."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strop.insight.trend import SURE, Curve, noise, trend


def curve(*values: float) -> Curve:
    return Curve(range(1, len(values) + 1), values)


def noisy(seed: int, steps: int, slope: float = 0.0, deviation: float = 1.0) -> Curve:
    draw = random.Random(seed)
    return curve(*(slope * step + draw.gauss(0, deviation) for step in range(steps)))


def test_a_line_is_found_as_it_is() -> None:
    found = trend(curve(*(2 + 0.5 * step for step in range(100))))
    assert found.start == pytest.approx(2.0)
    assert found.end == pytest.approx(2 + 0.5 * 99)
    assert found.rises(49)
    assert not found.rises(50)
    assert not found.falls(0)


def test_a_level_has_no_trend() -> None:
    found = trend(curve(*[0.3] * 60))
    assert (found.change, found.p_value) == (0.0, 1.0)
    assert found.stays(0.01)


def test_some_wild_points_move_little() -> None:
    values = [0.01 * step for step in range(100)]
    wild = [50.0 if step in (7, 8, 31, 77) else value for step, value in enumerate(values)]
    found = trend(curve(*wild))
    assert found.change == pytest.approx(0.99, rel=0.1)
    assert found.rises(0.5)


def test_two_points_make_a_line_but_no_certainty() -> None:
    found = trend(curve(0.0, 1.0))
    assert found.change == 1.0
    assert not found.rises(0.5)


def test_noise_is_called_a_trend_as_rarely_as_promised() -> None:
    alarms = sum(trend(noisy(seed, 100)).p_value < SURE for seed in range(500))
    assert alarms <= 0.02 * 500


def test_a_trend_of_three_times_the_noise_is_found() -> None:
    assert all(trend(noisy(seed, 100, slope=0.03)).rises(1.0) for seed in range(50))
    assert all(trend(noisy(seed, 100, slope=-0.03)).falls(1.0) for seed in range(50))


def test_what_moves_a_little_without_being_sure_stays() -> None:
    assert sum(trend(noisy(seed, 100)).stays(0.5) for seed in range(200)) >= 185
    assert not any(trend(noisy(seed, 100, slope=0.03)).stays(0.5) for seed in range(200))


def test_noise_is_measured_around_a_slow_course() -> None:
    assert noise(noisy(0, 2000, slope=0.01, deviation=0.2)) == pytest.approx(0.2, rel=0.1)
    assert noise(curve(1.0)) == 0.0


def test_curves_are_cut_by_step_and_by_count() -> None:
    whole = Curve((2, 4, 6, 8), (1.0, 2.0, 3.0, 4.0))
    assert whole.since(4) == Curve((4, 6, 8), (2.0, 3.0, 4.0))
    assert whole.until(5) == Curve((2, 4), (1.0, 2.0))
    assert whole.first(1) == Curve((2,), (1.0,))
    assert whole.last(2) == Curve((6, 8), (3.0, 4.0))
    assert whole.last(9) == whole
    assert (whole.quantile(0), whole.quantile(0.5), whole.quantile(1)) == (1.0, 3.0, 4.0)


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=60), st.floats(-100, 100), st.floats(0.01, 100))
def test_shifting_and_stretching_a_curve_shifts_and_stretches_its_trend(
    values: list[float], shift: float, stretch: float
) -> None:
    plain, other = trend(curve(*values)), trend(curve(*(shift + stretch * value for value in values)))
    assert other.change == pytest.approx(stretch * plain.change, rel=1e-6, abs=1e-3)
    assert other.start == pytest.approx(shift + stretch * plain.start, rel=1e-6, abs=1e-2)
