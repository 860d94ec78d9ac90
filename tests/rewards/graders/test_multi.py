"""multi: parts at the same time, the formula over them, and what a failing part costs."""

from __future__ import annotations

from typing import Any

import pytest
from grading import check, grade, settings
from judge_server import fails, scores, serving

from strop.errors import RewardError
from strop.types import Failure


def multi(formula: str, **graders: Any) -> dict[str, Any]:
    return {"type": "multi", "name": "both", "graders": graders, "calculate_output": formula}


def score_model(url: str) -> dict[str, Any]:
    shape = {"type": "score_model", "model": "judge", "input": [{"role": "user", "content": "{{sample.output_text}}"}]}
    return shape | {"base_url": url}


CODE = {"type": "python", "source": "def grade(sample, item):\n    print('looking')\n    return 0.5\n"}
BROKEN = {"type": "python", "source": "def grade(sample, item):\n    raise KeyError('x')\n"}
ITEM = {"answer": "4"}


def test_the_formula_over_the_parts_is_the_value() -> None:
    with serving(scores(0.75)) as server:
        graders = {"exact": check(), "code": CODE, "judge": score_model(server.url)}
        graded = grade(multi("0.5 * exact + 0.3 * code + 0.2 * min(judge, 0.5)", **graders), "4", ITEM)
    assert graded.value == pytest.approx(0.5 + 0.15 + 0.1)
    assert {name: part.value for name, part in graded.parts.items()} == {"exact": 1.0, "code": 0.5, "judge": 0.75}
    assert graded.logs.startswith("[code] looking\n[judge] judge-2025: {")
    assert graded.seconds == max(part.seconds for part in graded.parts.values())


def test_a_part_that_the_formula_needs_fails_the_whole_with_its_cause() -> None:
    graded = grade(multi("exact + code", exact=check(), code=BROKEN), "4", ITEM)
    assert graded.value is None
    assert graded.failure and graded.failure.cause == "exception"
    assert graded.failure.message == "code: KeyError: 'x' at grader.py:2"
    assert graded.parts["exact"].value == 1.0


def test_a_part_that_the_formula_does_not_use_costs_nothing() -> None:
    with serving(fails(404)) as server:
        graded = grade(multi("exact", exact=check(), judge=score_model(server.url)), "4", ITEM)
    assert (graded.value, graded.failure) == (1.0, None)
    assert graded.logs.startswith("[judge] failed: judge at http://127.0.0.1:")


def test_an_answer_that_is_at_fault_has_the_lowest_value_of_that_part_only() -> None:
    graders = {"exact": check(), "form": check(input="{{sample.output_json.a}}")}
    graded = grade(multi("0.75 * exact + 0.25 * form", **graders), "4", ITEM)
    assert (graded.value, graded.failure) == (0.75, None)
    assert graded.parts["form"].fault == "invalid_variable_error"


@pytest.mark.parametrize(
    ("formula", "why"),
    [
        ("1 / wrong", "division by zero in 1 / 0"),
        ("exp(1000 * exact)", "exp(1000) is too large"),
        ("sqrt(wrong - exact)", "sqrt(-1) has no value"),
    ],
)
def test_a_formula_without_a_value_is_a_failure(formula: str, why: str) -> None:
    graded = grade(multi(formula, exact=check(), wrong=check(operation="ne")), "4", ITEM)
    assert graded.value is None
    assert graded.failure and graded.failure.cause == "formula"
    assert graded.failure.message.startswith(f"calculate_output: {why}, where ")


def test_a_formula_of_numbers_alone_names_itself() -> None:
    failure = grade(multi("1 / 0", exact=check()), "4", ITEM).failure
    assert failure == Failure("formula", "calculate_output: division by zero in 1 / 0, where 1 / 0")


def test_a_part_that_cannot_be_loaded_is_refused_by_its_name() -> None:
    broken = {"type": "python", "source": "1 / 0"}
    with pytest.raises(RewardError, match=r"^reward 'score\.code' cannot be loaded: ZeroDivisionError"):
        grade(multi("exact + code", exact=check(), code=broken), "4", ITEM, config=settings())
