"""The learning rate at first, last and warm-up steps."""

from __future__ import annotations

import math
from typing import Any

import pytest

from strop.config import TrainConfig
from strop.train.schedule import peak_rate, rate_at


def rates(total: int, **settings: Any) -> list[float]:
    """The rate of every step, for a peak of 1."""
    return [rate_at(step, total, 1.0, TrainConfig(**settings)) for step in range(1, total + 1)]


def test_constant_stays_at_the_peak() -> None:
    assert rates(4, schedule="constant") == [1, 1, 1, 1]


def test_linear_starts_at_the_peak_and_would_reach_zero_after_the_last_step() -> None:
    assert rates(4, schedule="linear") == pytest.approx([1, 0.75, 0.5, 0.25])


def test_cosine_starts_at_the_peak_and_would_reach_zero_after_the_last_step() -> None:
    quarter = math.sqrt(0.5)
    assert rates(4, schedule="cosine") == pytest.approx([1, (1 + quarter) / 2, 0.5, (1 - quarter) / 2])


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
def test_warm_up_rises_by_equal_parts_to_the_peak_on_its_last_step(schedule: str) -> None:
    assert rates(10, schedule=schedule, warmup_ratio=0.4)[:5] == pytest.approx([0.25, 0.5, 0.75, 1, 1])


def test_after_the_warm_up_the_rest_of_the_steps_is_the_whole_fall() -> None:
    assert rates(6, schedule="linear", warmup_ratio=1 / 3)[2:] == pytest.approx([1, 0.75, 0.5, 0.25])


def test_any_warm_up_takes_at_least_one_step() -> None:
    # Of 3 steps 1 % is a part of a step: rounded up, so that the first step is at the peak.
    assert rates(3, warmup_ratio=0.01) == [1, 1, 1]


def test_a_run_of_one_step_trains_at_the_peak() -> None:
    for schedule in ("constant", "linear", "cosine"):
        assert rates(1, schedule=schedule) == [1]
        assert rates(1, schedule=schedule, warmup_ratio=0.5) == [1]


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
def test_every_rate_is_above_zero_and_never_above_the_peak(schedule: str) -> None:
    for total in (1, 2, 7, 50):
        for warmup in (0.0, 0.1, 0.9):
            assert all(0 < rate <= 1 for rate in rates(total, schedule=schedule, warmup_ratio=warmup))


def test_a_configured_rate_is_taken_as_it_is() -> None:
    assert peak_rate(TrainConfig(learning_rate=3e-5), hidden_size=4096) == 3e-5


@pytest.mark.parametrize(("method", "rate"), [("lora", 2e-4), ("full", 1e-5)])
def test_auto_goes_by_method_and_falls_with_the_width(method: Any, rate: float) -> None:
    config = TrainConfig(method=method)
    assert peak_rate(config, hidden_size=576) == pytest.approx(rate)
    assert peak_rate(config, hidden_size=1152) == pytest.approx(rate / 2)


@pytest.mark.parametrize(("configured", "rate"), [("auto", 1e-4), (3e-5, 1.5e-5)])
def test_the_multiplier_is_a_factor_on_either(configured: Any, rate: float) -> None:
    config = TrainConfig(learning_rate=configured, learning_rate_multiplier=0.5)
    assert peak_rate(config, hidden_size=576) == pytest.approx(rate)
