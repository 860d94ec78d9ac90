"""Formulas: precedence, functions, what is refused, and agreement with Python."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strop.rewards.graders.formula import FormulaError, parse_formula

VALUES = {"a": 0.5, "b": -2.0, "name_2": 3.0, "min": 7.0}


def value(text: str) -> float:
    return parse_formula(text).value(VALUES)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1", 1.0),
        (" 2.5e-1 ", 0.25),
        (".5 + 2.", 2.5),
        ("a", 0.5),
        ("1 - 2 - 3", -4.0),
        ("8 / 4 / 2", 1.0),
        ("1 + 2 * 3", 7.0),
        ("(1 + 2) * 3", 9.0),
        ("2 ^ 3 ^ 2", 512.0),
        ("-2 ^ 2", -4.0),
        ("2 ^ -1", 0.5),
        ("- - 2", 2.0),
        ("+a", 0.5),
        ("min(a, b, name_2)", -2.0),
        ("max(a, b)", 0.5),
        ("abs(b)", 2.0),
        ("floor(b - a)", -3.0),
        ("ceil(a)", 1.0),
        ("exp(0)", 1.0),
        ("sqrt(4)", 2.0),
        ("log(exp(2))", 2.0),
        ("min", 7.0),
        ("min(min, 8)", 7.0),
        ("0.5 * a + 0.5 * min(1, abs(b))", 0.75),
    ],
)
def test_formulas_have_their_usual_value(text: str, expected: float) -> None:
    assert value(text) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "expected a number, a name or '(' at character 1, found the end"),
        ("1 +", "expected a number, a name or '(' at character 4, found the end"),
        ("0.5 * a + 0.5 * b)", "expected an operator or the end at character 18, found ')'"),
        ("(1 + 2", "expected ')' at character 7, found the end"),
        ("1 2", "expected an operator or the end at character 3, found '2'"),
        ("2 ** 3", "expected a number, a name or '(' at character 4, found '*'"),
        ("a.b", "'.' at character 2 has no place in a formula"),
        ("a  % 2", "'%' at character 4 has no place in a formula"),
        ("a if b else c", "expected an operator or the end at character 3, found 'if'"),
        ("pow(2, 3)", "unknown function 'pow'; there are min, max, abs, floor, ceil, exp, sqrt, log"),
        ("min(1)", "min takes two or more values, found 1"),
        ("sqrt(1, 2)", "sqrt takes one value, found 2"),
        ("sqrt()", "expected a number, a name or '(' at character 6, found ')'"),
        ("1e999", "the number 1e999 is too large"),
        ("²", "'²' at character 1 has no place in a formula"),
        ("(" * 51 + "1" + ")" * 51, "it is nested more than 50 levels deep"),
        ("-" * 100_000 + "1", "it has 100,001 characters; the limit is 10,000"),
        ("2^" * 60 + "1", "it is nested more than 50 levels deep"),
    ],
)
def test_a_formula_that_cannot_be_read_is_refused_with_its_place(text: str, why: str) -> None:
    with pytest.raises(FormulaError) as caught:
        parse_formula(text)
    assert str(caught.value) == why


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("1 / (a - a)", "division by zero in 1 / 0"),
        ("0 ^ -1", "division by zero in 0 ^ -1"),
        ("10 ^ 400", "10 ^ 400 is too large"),
        ("1e200 * 1e200", "1e+200 * 1e+200 is too large"),
        ("exp(1000)", "exp(1000) is too large"),
        ("sqrt(b)", "sqrt(-2) has no value"),
        ("log(0)", "log(0) has no value"),
        ("b ^ 0.5", "-2 ^ 0.5 has no value"),
    ],
)
def test_a_formula_without_a_value_is_an_error(text: str, why: str) -> None:
    with pytest.raises(FormulaError) as caught:
        value(text)
    assert str(caught.value) == why


def test_the_names_that_a_formula_needs_are_known_before() -> None:
    assert parse_formula("min(a, 2) + b_1 * a ^ min").names == {"a", "b_1", "min"}


def test_a_long_sum_exhausts_no_stack() -> None:
    assert value("+".join(["1"] * 5_000)) == 5_000


@settings(deadline=None)
@given(st.text(st.sampled_from("0123456789.e+-*/^(), abminxsqrt"), max_size=40) | st.text(max_size=20))
def test_any_text_is_a_formula_or_refused(text: str) -> None:
    with contextlib.suppress(FormulaError):
        formula = parse_formula(text)
        assert math.isfinite(formula.value(dict.fromkeys(formula.names, 0.5)))


PYTHON: dict[str, Any] = {
    "__builtins__": {},
    **{name: getattr(math, name) for name in ("exp", "sqrt", "log")},
    **{"floor": lambda x: float(math.floor(x)), "ceil": lambda x: float(math.ceil(x))},
    **{"abs": math.fabs, "min": min, "max": max},
}
"""The functions as Python has them; whole numbers as floats, for Python's integers have no end."""


def _expressions() -> st.SearchStrategy[str]:
    leaves = st.floats(0, 100).map(lambda number: repr(round(number, 3))) | st.sampled_from(["a", "b", "name_2"])

    def larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        one = st.sampled_from(["abs", "floor", "ceil", "exp", "sqrt", "log"])
        two = st.sampled_from(["min", "max"])
        return (
            st.tuples(inner, st.sampled_from("+-*/^"), inner).map(" ".join)
            | inner.map("({})".format)
            | inner.map("-{}".format)
            | st.tuples(one, inner).map(lambda call: f"{call[0]}({call[1]})")
            | st.tuples(two, inner, inner).map(lambda call: f"{call[0]}({call[1]}, {call[2]})")
        )

    return st.recursive(leaves, larger, max_leaves=12)


@settings(deadline=None)
@given(_expressions())
def test_formulas_agree_with_pythons_own_arithmetic(text: str) -> None:
    try:
        expected = eval(text.replace("^", "**"), PYTHON, {"a": 0.5, "b": -2.0, "name_2": 3.0})
    except (ArithmeticError, ValueError, TypeError):  # TypeError: a function of a complex number
        expected = math.nan
    try:
        assert value(text) == pytest.approx(expected, rel=1e-12)
    except FormulaError as error:
        # Python goes on from an infinity, which may vanish again: 1 / (1e300 * 1e300).
        assert isinstance(expected, complex) or not math.isfinite(expected) or "is too large" in str(error)
