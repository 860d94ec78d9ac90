"""The order of rows: seeded, complete in every epoch, resumable."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strop.data.order import DataOrder
from strop.errors import RunError

orders = st.builds(DataOrder, st.integers(1, 40), st.integers(1, 12), st.integers(0, 2**31 - 1))


@given(order=orders, epoch=st.integers(0, 3))
def test_every_epoch_takes_every_row_once(order: DataOrder, epoch: int) -> None:
    first = epoch * order.steps_per_epoch + 1
    taken = [index for step in range(first, first + order.steps_per_epoch) for index in order.batch(step)]
    assert sorted(taken) == list(range(order.row_count))


@given(order=orders, step=st.integers(1, 100))
def test_only_the_last_batch_of_an_epoch_is_smaller(order: DataOrder, step: int) -> None:
    last = step % order.steps_per_epoch == 0
    expected = order.row_count - (order.steps_per_epoch - 1) * order.batch_size if last else order.batch_size
    assert len(order.batch(step)) == expected


def test_the_order_is_the_same_in_every_python_and_process() -> None:
    # Written down once: a change here would break the resuming of older runs.
    assert [DataOrder(7, 3, 17).batch(step) for step in range(1, 7)] == [
        [6, 1, 3],
        [4, 5, 0],
        [2],
        [2, 6, 1],
        [4, 0, 5],
        [3],
    ]


def test_the_order_does_not_depend_on_the_hash_seed() -> None:
    code = "from strop.data.order import DataOrder; print(DataOrder(50, 50, 3).batch(1))"
    printed = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert printed == {f"{DataOrder(50, 50, 3).batch(1)}\n"}


def test_epochs_and_seeds_differ_in_order() -> None:
    order = DataOrder(100, 100, 17)
    assert order.batch(1) != order.batch(2)
    assert order.batch(1) != DataOrder(100, 100, 18).batch(1)
    assert order.batch(1) == DataOrder(100, 100, 17).batch(1)


def test_asking_for_a_step_does_not_depend_on_the_steps_before() -> None:
    order = DataOrder(10, 4, 1)
    forwards = [order.batch(step) for step in range(1, 31)]
    assert [order.batch(step) for step in range(30, 0, -1)] == forwards[::-1]


def test_the_rows_of_an_epoch_are_spread() -> None:
    # The mean place of the first hundred rows of a thousand, over several epochs.
    order = DataOrder(1000, 1000, 5)
    places = [order.batch(epoch).index(row) for epoch in range(1, 6) for row in range(100)]
    assert 400 < sum(places) / len(places) < 600


def test_a_batch_may_be_larger_than_the_data() -> None:
    assert sorted(DataOrder(3, 8, 1).batch(2)) == [0, 1, 2]


@given(order=orders, step=st.integers(0, 100))
def test_a_state_leads_back_to_its_step(order: DataOrder, step: int) -> None:
    state = json.loads(json.dumps(order.state(step)))
    assert order.resume_step(state) == step
    assert state["epoch"] == step // order.steps_per_epoch
    assert 0 <= state["cursor"] < order.row_count


def test_the_cursor_starts_anew_with_each_epoch() -> None:
    order = DataOrder(10, 4, 1)
    places = [(order.state(step)["epoch"], order.state(step)["cursor"]) for step in range(5)]
    assert places == [(0, 0), (0, 4), (0, 8), (1, 0), (1, 4)]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("seed", 18),
        ("row_count", 9),
        ("batch_size", 5),
        ("fingerprint", "other"),
        ("epoch", -1),
        ("epoch", "1"),
        ("cursor", 3),
        ("cursor", 12),
        ("cursor", None),
    ],
)
def test_a_state_that_does_not_fit_is_refused(field: str, value: object) -> None:
    order = DataOrder(10, 4, 17, "abc")
    with pytest.raises(RunError) as caught:
        order.resume_step(order.state(1) | {field: value}, "run/state.pt")
    assert caught.value.param == field
    assert f"run/state.pt: {field} is {value!r}, expected" in caught.value.message


def test_a_state_without_a_field_is_refused() -> None:
    with pytest.raises(RunError, match="seed is None, expected 17"):
        DataOrder(10, 4, 17).resume_step({})


@pytest.mark.parametrize(("rows", "batch"), [(0, 1), (1, 0), (-1, 1)])
def test_an_order_needs_rows_and_a_batch(rows: int, batch: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        DataOrder(rows, batch, 1)


def test_steps_are_counted_from_one() -> None:
    with pytest.raises(ValueError, match="counted from 1"):
        DataOrder(3, 1, 1).batch(0)
