"""Curves: packed, smoothed, thinned out, and under the names of hosted services."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from run_folders import new_run, record
from strop.errors import InvalidRequest, NotFound
from strop.store import queries
from strop.store.db import Database
from strop.store.ingest import Ingester
from strop.store.packed import pack, unpack
from strop.store.queries.curves import Curve, reference_metrics, smoothed, thinned

FINITE = st.floats(allow_nan=False, allow_infinity=False, width=32)


@pytest.fixture
def run_id(database: Database, tmp_path: Path) -> str:
    """Forty steps: a metric in every step, one in every tenth, one that comes late."""
    run = new_run(tmp_path / "runs" / "one")
    for step in range(1, 41):
        metrics = {"reward": step / 40, "loss": 1.0 - step / 40}
        if step % 10 == 0:
            metrics["validation/reward"] = step / 100
        if step > 30:
            metrics["kl_loss"] = 0.001 * step
        record(run, step, metrics=metrics)
    return Ingester(database, tmp_path).import_run(run.path)


# Packing


@given(st.lists(st.dictionaries(st.sampled_from("abcd"), FINITE)))
def test_what_is_packed_comes_back_whatever_came_up_when(steps: list[dict[str, float]]) -> None:
    names: list[str] = []
    packed = []
    for metrics in steps:
        names += [name for name in metrics if name not in names]
        packed.append(pack(metrics, names))
    columns = unpack(packed, len(names), range(len(names)))
    for place, name in enumerate(names):
        for step, value in zip(steps, columns[place], strict=True):
            assert value == step[name] if name in step else math.isnan(value)


# Smoothing


def test_a_constant_stays_what_it_is_from_the_first_value_on() -> None:
    assert smoothed([3.0] * 50, 0.99) == pytest.approx([3.0] * 50)


def test_smoothing_is_the_weighted_mean_of_the_past() -> None:
    values, weight = [1.0, 5.0, 2.0, 8.0], 0.6
    for count in range(1, 5):
        weights = [weight ** (count - 1 - place) for place in range(count)]
        mean = sum(w * v for w, v in zip(weights, values[:count], strict=True)) / sum(weights)
        assert smoothed(values, weight)[count - 1] == pytest.approx(mean)


def test_without_smoothing_values_stay() -> None:
    assert smoothed([1.0, 5.0, 2.0], 0.0) == [1.0, 5.0, 2.0]


@given(st.lists(FINITE, min_size=1), st.floats(0, 0.999))
def test_a_smoothed_curve_stays_within_its_values(values: list[float], weight: float) -> None:
    slack = 1e-9 * max(map(abs, values)) + 1e-30
    assert min(values) - slack <= min(smoothed(values, weight))
    assert max(smoothed(values, weight)) <= max(values) + slack


# Thinning


@given(st.lists(FINITE, max_size=300), st.integers(2, 50))
def test_thinning_keeps_both_ends_and_both_extremes(values: list[float], points: int) -> None:
    places = thinned(values, points)
    assert places == sorted(set(places))
    assert len(places) <= points + 2
    if values:
        kept = [values[place] for place in places]
        assert (kept[0], kept[-1]) == (values[0], values[-1])
        assert (min(kept), max(kept)) == (min(values), max(values))


def test_a_single_spike_is_never_thinned_out() -> None:
    for place in range(1, 999):
        values = [0.0] * 1000
        values[place] = 1.0
        assert place in thinned(values, 20)


def test_few_points_are_all_kept() -> None:
    assert thinned([1.0, 1.0, 1.0], 3) == [0, 1, 2]


# Series of a run


def test_a_curve_has_a_point_where_its_metric_was_measured(database: Database, run_id: str) -> None:
    with database.read() as connection:
        curves = queries.series(connection, run_id, ["validation/reward", "kl_loss"])
    assert curves["validation/reward"]["steps"] == [10, 20, 30, 40]
    assert curves["validation/reward"]["values"] == [0.1, 0.2, 0.3, 0.4]
    assert curves["kl_loss"]["steps"] == list(range(31, 41))


def test_metrics_are_named_in_the_order_in_which_they_came_up(database: Database, run_id: str) -> None:
    with database.read() as connection:
        assert queries.metric_names(connection, run_id) == ["reward", "loss", "validation/reward", "kl_loss"]
        assert list(queries.series(connection, run_id)) == ["reward", "loss", "validation/reward", "kl_loss"]


def test_the_newest_value_of_each_metric_is_found(database: Database, run_id: str) -> None:
    with database.read() as connection:
        assert queries.latest_metrics(connection, run_id) == {
            "reward": 1.0,
            "loss": 0.0,
            "validation/reward": 0.4,
            "kl_loss": 0.04,
        }


def test_a_part_of_a_curve_is_smoothed_as_the_whole(database: Database, run_id: str) -> None:
    with database.read() as connection:
        whole = queries.series(connection, run_id, ["reward"], smoothing=0.9)["reward"]
        part = queries.series(connection, run_id, ["reward"], first=11, last=20, smoothing=0.9)["reward"]
    assert part["steps"] == list(range(11, 21))
    assert part["smoothed"] == whole["smoothed"][10:20]


def test_a_curve_has_at_most_the_points_asked_for(database: Database, run_id: str) -> None:
    with database.read() as connection:
        curve = queries.series(connection, run_id, ["reward"], points=10)["reward"]
    assert len(curve["steps"]) == len(curve["values"]) == len(curve["smoothed"]) <= 10
    assert (curve["steps"][0], curve["steps"][-1]) == (1, 40)


def test_a_range_without_steps_has_no_points(database: Database, run_id: str) -> None:
    with database.read() as connection:
        curves = queries.series(connection, run_id, ["reward", "unknown"], first=100)
    assert curves == {name: {"steps": [], "values": [], "smoothed": []} for name in ("reward", "unknown")}


@pytest.mark.parametrize(
    ("settings", "param"),
    [({"smoothing": 1.0}, "smoothing"), ({"smoothing": -0.1}, "smoothing"), ({"points": 1}, "points")],
)
def test_settings_out_of_range_are_refused(
    settings: dict[str, float], param: str, database: Database, run_id: str
) -> None:
    with database.read() as connection, pytest.raises(InvalidRequest) as caught:
        queries.series(connection, run_id, **settings)  # type: ignore[arg-type]
    assert caught.value.param == param


def test_a_run_that_is_not_there_is_named(database: Database) -> None:
    with database.read() as connection, pytest.raises(NotFound, match="run_nowhere"):
        queries.series(connection, "run_nowhere")


# Names of hosted services


def test_metrics_of_training_and_validation_have_the_names_of_the_reference(database: Database, run_id: str) -> None:
    with database.read() as connection:
        metrics = queries.run(connection, run_id)["metrics"]
    assert list(metrics["training_metrics"]) == ["reward", "kl_loss"]
    assert metrics["training_metrics"]["kl_loss"]["steps"] == list(range(31, 41))
    assert metrics["validation_metrics"] == {
        "reward": {"steps": [10, 20, 30, 40], "values": [0.1, 0.2, 0.3, 0.4]},
    }


def test_every_metric_of_the_reference_is_passed_on() -> None:
    names = [
        *("reward", "reward_group_std", "frac_reward_zero_std", "response_length", "response_length_clip_ratio"),
        *("kl_loss", "entropy", "grad_norm"),
    ]
    curve: Curve = {"steps": [1], "values": [0.5], "smoothed": [0.5]}
    found = reference_metrics({name: curve for base in names for name in (base, f"validation/{base}")})
    assert list(found["training_metrics"]) == list(found["validation_metrics"]) == names
