from __future__ import annotations

import math

import pytest

from strop.web.histogram import Bar, bars


def test_no_values_make_no_bars() -> None:
    assert bars([]) == []


def test_values_that_are_all_the_same_make_one_bar() -> None:
    assert bars([0.5, 0.5]) == [Bar(0.5, 0.5, 2)]


def test_the_ends_are_inside() -> None:
    assert bars([0.0, 0.25, 0.5, 1.0], 4) == [Bar(0, 0.25, 1), Bar(0.25, 0.5, 1), Bar(0.5, 0.75, 1), Bar(0.75, 1, 1)]


@pytest.mark.parametrize("most", [1, 7, 24, 100])
def test_every_value_is_in_one_bar(most: int) -> None:
    values = [((place * 37) % 101) / 7 for place in range(500)]
    found = bars(values, most)
    assert len(found) == most
    assert sum(bar.count for bar in found) == 500
    assert found[0].low == min(values)
    assert math.isclose(found[-1].high, max(values))


def test_whole_numbers_are_not_cut_apart() -> None:
    assert bars([3, 3, 4, 6], 24, whole=True) == [Bar(3, 3, 2), Bar(4, 4, 1), Bar(5, 5, 0), Bar(6, 6, 1)]
    wide = bars(range(100), 24, whole=True)
    assert len(wide) <= 24
    assert {bar.high - bar.low + 1 for bar in wide} == {5}
    assert sum(bar.count for bar in wide) == 100
