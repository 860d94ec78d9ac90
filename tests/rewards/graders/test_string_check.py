"""string_check: its operations, and samples that lack what it asks for."""

from __future__ import annotations

import pytest
from grading import check, grade

from strop.types import Failure


@pytest.mark.parametrize(
    ("operation", "text", "reference", "value"),
    [
        ("eq", "Paris", "Paris", 1.0),
        ("eq", "paris", "Paris", 0.0),
        ("eq", "", "", 1.0),
        ("ne", "Paris", "Paris", 0.0),
        ("neq", "Rome", "Paris", 1.0),
        ("like", "It is Paris.", "Paris", 1.0),
        ("like", "Paris", "It is Paris.", 0.0),
        ("like", "It is paris.", "Paris", 0.0),
        ("ilike", "IT IS PARIS.", "paris", 1.0),
        ("ilike", "STRASSE", "straße", 1.0),
        ("ilike", "Rome", "paris", 0.0),
    ],
)
def test_operations_give_one_or_zero(operation: str, text: str, reference: str, value: float) -> None:
    assert grade(check(operation=operation), text, {"answer": reference}).value == value


def test_values_that_are_no_text_are_compared_as_json() -> None:
    grader = check(input="{{sample.output_json.age}}", reference="{{item.age}}")
    assert grade(grader, '{"age": 31}', {"age": 31}).value == 1.0
    assert grade(grader, '{"age": null}', {"age": None}).value == 1.0
    assert grade(grader, '{"age": true}', {"age": 1}).value == 0.0


def test_a_row_that_lacks_a_variable_is_a_failure() -> None:
    failed = grade(check(), "4", {"anwser": "4"})
    why = "{{ item.answer }}: there is no 'answer' in item, which is an object with anwser"
    assert (failed.value, failed.failure) == (None, Failure("variable", why))


@pytest.mark.parametrize(
    ("text", "fault", "log"),
    [
        ("no JSON", "sample_parse_error", "lowest value: {{ sample.output_json.a }}: the answer is not JSON\n"),
        ('{"b": 1}', "invalid_variable_error", "lowest value: {{ sample.output_json.a }}: there is no 'a' in"),
    ],
)
@pytest.mark.parametrize("operation", ["eq", "ne"])
def test_an_answer_that_lacks_one_has_the_lowest_value_and_says_why(
    operation: str, text: str, fault: str, log: str
) -> None:
    graded = grade(check(input="{{sample.output_json.a}}", operation=operation), text, {"answer": "4"})
    assert (graded.value, graded.failure, graded.fault) == (0.0, None, fault)
    assert graded.logs.startswith(log)
