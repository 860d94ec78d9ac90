"""Grader objects: every type, the three forms of a multi grader, and what is refused where."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strop.errors import InvalidRequest
from strop.rewards.graders.judges import LabelModel, ScoreModel
from strop.rewards.graders.multi import Multi
from strop.rewards.graders.parse import parse_grader
from strop.rewards.graders.python import Python
from strop.rewards.graders.similarity import TextSimilarity
from strop.rewards.graders.string_check import StringCheck

SAMPLE = {"output_text": "It is 4."}
ITEM = {"answer": "4", "pic": "https://example.org/a.png"}

CHECK: dict[str, Any] = {
    "type": "string_check",
    "name": "exact",
    "input": "{{sample.output_text}}",
    "reference": "{{item.answer}}",
    "operation": "eq",
}
SIMILARITY: dict[str, Any] = {
    "type": "text_similarity",
    "name": "alike",
    "input": "{{sample.output_text}}",
    "reference": "{{item.answer}}",
    "evaluation_metric": "fuzzy_match",
}
PYTHON: dict[str, Any] = {"type": "python", "source": "def grade(sample, item):\n    return 1.0\n"}
SCORE: dict[str, Any] = {
    "type": "score_model",
    "name": "judge",
    "model": "o4-mini",
    "input": [{"role": "user", "content": "Rate {{sample.output_text}}"}],
}
LABEL: dict[str, Any] = SCORE | {"type": "label_model", "labels": ["good", "bad"], "passing_labels": ["good"]}


def refusal(value: Any) -> tuple[str | None, str]:
    with pytest.raises(InvalidRequest) as caught:
        parse_grader(value)
    assert caught.value.message.startswith(f"{caught.value.param}: ")
    return caught.value.param, caught.value.message.partition(": ")[2]


# Each type.


def test_a_string_check_is_read() -> None:
    grader = parse_grader(CHECK)
    assert isinstance(grader, StringCheck)
    assert (grader.type, grader.name, grader.operation) == ("string_check", "exact", "eq")
    assert grader.input.render(SAMPLE, ITEM) == "It is 4."
    assert grader.reference.render(SAMPLE, ITEM) == "4"


@pytest.mark.parametrize("operation", ["ne", "neq"])
def test_both_spellings_of_not_equal_are_one(operation: str) -> None:
    grader = parse_grader(CHECK | {"operation": operation})
    assert isinstance(grader, StringCheck) and grader.operation == "ne"


def test_a_text_similarity_is_read() -> None:
    grader = parse_grader(SIMILARITY)
    assert isinstance(grader, TextSimilarity) and grader.evaluation_metric == "fuzzy_match"


def test_a_python_grader_is_read_whatever_its_image() -> None:
    grader = parse_grader(PYTHON | {"image_tag": "2025-05-08"})
    assert isinstance(grader, Python)
    assert (grader.name, grader.source) == ("python", PYTHON["source"])


def test_a_score_model_is_read_with_its_defaults() -> None:
    grader = parse_grader(SCORE)
    assert isinstance(grader, ScoreModel)
    assert (grader.range, grader.model, grader.sampling_params.as_request()) == ((0.0, 1.0), "o4-mini", {})
    assert (grader.base_url, grader.api_key_env, grader.max_concurrent) == (None, None, 16)


@pytest.mark.parametrize("spelling", ["max_completions_tokens", "max_completion_tokens"])
def test_sampling_settings_get_the_names_of_chat_completions(spelling: str) -> None:
    sampling = {"temperature": 0, "top_p": 0.5, "seed": 7, "reasoning_effort": "low", spelling: 100}
    grader = parse_grader(SCORE | {"sampling_params": sampling, "range": [-1, 3.5]})
    assert isinstance(grader, ScoreModel)
    expected = {"temperature": 0, "top_p": 0.5, "seed": 7, "reasoning_effort": "low", "max_completion_tokens": 100}
    assert grader.sampling_params.as_request() == expected
    assert grader.range == (-1.0, 3.5)


def test_a_label_model_is_read() -> None:
    grader = parse_grader(LABEL)
    assert isinstance(grader, LabelModel)
    assert (grader.labels, grader.passing_labels) == (("good", "bad"), ("good",))


@pytest.mark.parametrize("grader", [CHECK, SIMILARITY, PYTHON, SCORE, LABEL])
def test_a_name_that_is_missing_or_null_is_the_type(grader: dict[str, Any]) -> None:
    assert parse_grader({key: value for key, value in grader.items() if key != "name"}).name == grader["type"]
    assert parse_grader(grader | {"name": None}).name == grader["type"]


@pytest.mark.parametrize("key", ["pass_threshold", "id"])
def test_keys_of_evals_are_accepted_and_ignored(key: str) -> None:
    assert parse_grader(CHECK | {key: 0.5}) == parse_grader(CHECK)


# Messages.


def messages(*given: Any) -> list[dict[str, Any]]:
    grader = parse_grader(SCORE | {"input": list(given)})
    assert isinstance(grader, ScoreModel)
    return [message.render(SAMPLE, ITEM) for message in grader.input]


@pytest.mark.parametrize(
    "content",
    [
        "{{item.answer}}?",
        {"type": "input_text", "text": "{{item.answer}}?"},
        {"type": "output_text", "text": "{{item.answer}}?"},
        [{"type": "input_text", "text": "{{item.answer}}?"}],
        ["{{item.answer}}?"],
    ],
)
def test_content_is_a_text_a_block_or_a_list_of_blocks(content: Any) -> None:
    assert messages({"role": "user", "content": content, "type": "message"}) == [{"role": "user", "content": "4?"}]


def test_developers_are_the_system_for_every_server() -> None:
    assert messages({"role": "developer", "content": "Judge."})[0]["role"] == "system"


def test_pictures_and_sound_take_the_form_of_chat_completions() -> None:
    content = [
        {"type": "input_text", "text": "Like {{item.answer}}?"},
        {"type": "input_image", "image_url": "{{item.pic}}", "detail": "low"},
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
    ]
    assert messages({"role": "user", "content": content})[0]["content"] == [
        {"type": "text", "text": "Like 4?"},
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png", "detail": "low"}},
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
    ]


def test_halves_of_characters_are_replaced_for_no_request_can_carry_them() -> None:
    grader = parse_grader(SCORE)
    assert isinstance(grader, ScoreModel)
    message = grader.input[0].render({"output_text": "a\ud800b"}, {})
    assert message["content"] == "Rate a?b"


# Multi graders.


def multi(graders: Any, formula: str = "1") -> Multi:
    grader = parse_grader({"type": "multi", "graders": graders, "calculate_output": formula})
    assert isinstance(grader, Multi)
    return grader


def test_graders_by_key_are_known_to_the_formula_by_it() -> None:
    grader = multi({"form": CHECK, "judge": SCORE, "label": LABEL}, "0.5 * form + 0.5 * judge")
    assert grader.name == "multi"
    assert {key: part.type for key, part in grader.parts.items()} == {
        "form": "string_check",
        "judge": "score_model",
        "label": "label_model",
    }
    assert grader.formula.names == {"form", "judge"}


def test_a_list_of_graders_goes_by_names_that_a_formula_can_use() -> None:
    assert list(multi([CHECK, SIMILARITY], "exact + alike").parts) == ["exact", "alike"]


def test_a_list_with_other_names_goes_by_type_as_in_openais_example() -> None:
    graders = [SIMILARITY | {"name": "example text similarity grader"}, CHECK | {"name": None}]
    grader = multi(graders, "0.5 * text_similarity_score + 0.5 * string_check_score")
    assert list(grader.parts) == ["text_similarity_score", "string_check_score"]


def test_a_single_grader_is_a_list_of_one() -> None:
    assert list(multi(CHECK, "2 * exact").parts) == ["exact"]


def test_a_key_called_type_is_a_name_like_any_other() -> None:
    assert list(multi({"type": CHECK}, "type").parts) == ["type"]


# What is refused.


@pytest.mark.parametrize(
    ("grader", "param", "why"),
    [
        (None, "grader", "expected an object, found null"),
        ([CHECK], "grader", "expected an object, found a list of 1"),
        ({}, "grader.type", "missing"),
        ({"type": 7}, "grader.type", "expected a string, found 7"),
        ({"type": "endpoint"}, "grader.type", "unknown type 'endpoint'; expected one of string_check, "),
        (CHECK | {"operation": "equals"}, "grader.operation", "expected one of eq, ne, like, ilike, neq, found"),
        (CHECK | {"input": None}, "grader.input", "missing"),
        (CHECK | {"input": 3}, "grader.input", "expected a string"),
        (CHECK | {"input": "{{item.x"}, "grader.input", "'{{' at character 1 is never closed"),
        (CHECK | {"reference": "{{sample.txt}}"}, "grader.reference", "a sample has no 'txt'"),
        (CHECK | {"operatoin": "eq"}, "grader.operatoin", "unknown key; did you mean 'operation'?"),
        (CHECK | {"name": 1}, "grader.name", "expected a string, found 1"),
        (CHECK | {"xyz": 1}, "grader.xyz", "unknown key; expected one of type, name, input, reference, operation"),
        (CHECK | {"name": ["a"]}, "grader.name", "expected a string, found a list of 1"),
        (SIMILARITY | {"evaluation_metric": "cosine"}, "grader.evaluation_metric", "cosine is refused: it compares"),
        (SIMILARITY | {"evaluation_metric": "rouge_6"}, "grader.evaluation_metric", "expected one of fuzzy_match, "),
        (PYTHON | {"source": "#" * 256_000}, "grader.source", "256,000 bytes; a source has less than 256,000"),
        (SCORE | {"range": [1, 0]}, "grader.range", "[1, 0] is not a range"),
        (SCORE | {"range": [0, 1, 2]}, "grader.range", "expected 2 numbers, found a list of 3"),
        (SCORE | {"range": [0, float("inf")]}, "grader.range", "expected 2 numbers"),
        (SCORE | {"range": [0, 10**400]}, "grader.range", "expected 2 numbers"),
        (SCORE | {"sampling_params": {"seed": 10**400}}, "grader.sampling_params.seed", "expected a whole number"),
        (SCORE | {"range": [False, True]}, "grader.range", "expected 2 numbers"),
        (SCORE | {"input": "Rate it"}, "grader.input", "expected a list of messages"),
        (SCORE | {"input": []}, "grader.input", "expected a list of messages"),
        (SCORE | {"input": ["Rate it"]}, "grader.input.0", "expected an object, found the string 'Rate it'"),
        (SCORE | {"input": [{"role": "tool", "content": "x"}]}, "grader.input.0.role", "expected one of user, "),
        (SCORE | {"input": [{"role": "user"}]}, "grader.input.0.content", "missing"),
        (
            SCORE | {"input": [{"role": "user", "content": [{"type": "input_file"}]}]},
            "grader.input.0.content.0.type",
            "unknown type 'input_file'",
        ),
        (
            SCORE | {"input": [{"role": "user", "content": "{{x}}"}]},
            "grader.input.0.content",
            "{{x}} does not begin with item. or sample.",
        ),
        (SCORE | {"sampling_params": {"temperature": 3}}, "grader.sampling_params.temperature", "expected a number"),
        (SCORE | {"sampling_params": {"seed": 1.5}}, "grader.sampling_params.seed", "expected a whole number"),
        (SCORE | {"sampling_params": {"top_k": 4}}, "grader.sampling_params.top_k", "unknown key; did you mean"),
        (SCORE | {"sampling_params": []}, "grader.sampling_params", "expected an object"),
        (SCORE | {"max_concurrent": 0}, "grader.max_concurrent", "expected a whole number from 1 to 256, found 0"),
        (
            SCORE | {"max_concurrent": True},
            "grader.max_concurrent",
            "expected a whole number from 1 to 256, found true",
        ),
        (LABEL | {"labels": []}, "grader.labels", "expected a list of strings"),
        (LABEL | {"labels": ["good", "good"]}, "grader.labels", "a label is listed twice"),
        (LABEL | {"passing_labels": ["best"]}, "grader.passing_labels", "'best' is not one of the labels: good, bad"),
    ],
)
def test_a_faulty_grader_is_refused_with_its_place(grader: Any, param: str, why: str) -> None:
    found, message = refusal(grader)
    assert (found, message[: len(why)]) == (param, why)


@pytest.mark.parametrize(
    ("graders", "formula", "param", "why"),
    [
        ({"x": {"type": "magic"}}, "x", "grader.graders.x.type", "unknown type 'magic'"),
        ({"x": CHECK | {"operation": "is"}}, "x", "grader.graders.x.operation", "expected one of"),
        ([CHECK, {"type": "magic"}], "1", "grader.graders.1.type", "unknown type 'magic'"),
        (
            {"x": {"type": "multi", "graders": {}, "calculate_output": "1"}},
            "x",
            "grader.graders.x.type",
            "a multi grader cannot hold another multi grader",
        ),
        ({}, "1", "grader.graders", "0 graders; a multi grader has 1 to 32"),
        ([], "1", "grader.graders", "0 graders; a multi grader has 1 to 32"),
        ("x", "1", "grader.graders", "expected an object of graders by name"),
        (None, "1", "grader.graders", "missing"),
        ({"a-b": CHECK}, "1", "grader.graders.a-b", "its name must be letters, digits and _"),
        ([CHECK, CHECK], "exact", "grader.graders", "a list of graders needs names"),
        ({"x": CHECK}, "x + y", "grader.calculate_output", "there is no grader 'y'; there are x"),
        ({"x": CHECK}, "0.5 * x)", "grader.calculate_output", "'0.5 * x)' is not a formula: expected an operator"),
        ({"x": CHECK}, None, "grader.calculate_output", "missing"),
    ],
)
def test_a_faulty_multi_grader_is_refused_with_its_place(graders: Any, formula: Any, param: str, why: str) -> None:
    found, message = refusal({"type": "multi", "graders": graders, "calculate_output": formula})
    assert (found, message[: len(why)]) == (param, why)


@pytest.mark.parametrize("path", [("graders", "x", "input"), ("calculate_output",), ("graders",)])
@pytest.mark.parametrize("value", [0, 1.5, True, "", [], {}, [[]], {"": None}, "{{", "\ud800"])
def test_strange_values_are_accepted_or_refused_and_nothing_else(path: tuple[str, ...], value: Any) -> None:
    grader: dict[str, Any] = {"type": "multi", "graders": {"x": copy.deepcopy(CHECK)}, "calculate_output": "x"}
    place = grader
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    try:
        parse_grader(grader)
    except InvalidRequest as error:
        assert error.param and error.param.startswith("grader.")


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=6)
    | st.sampled_from(["python", "multi"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "input", "x"]), inner),
    max_leaves=6,
)


@settings(deadline=None)
@given(st.sampled_from([CHECK, SIMILARITY, PYTHON, SCORE, LABEL]), st.data())
def test_any_value_anywhere_is_accepted_or_refused(grader: dict[str, Any], data: st.DataObject) -> None:
    changed = grader | {data.draw(st.sampled_from([*grader, "range", "sampling_params", "base_url"])): data.draw(JSON)}
    for value in (changed, {"type": "multi", "graders": {"x": changed}, "calculate_output": "x"}):
        try:
            parse_grader(value)
        except InvalidRequest as error:
            assert error.param and error.param.startswith("grader")


def test_the_place_begins_as_the_caller_says() -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_grader({"type": "magic"}, "method.reinforcement.grader")
    assert caught.value.param == "method.reinforcement.grader.type"
