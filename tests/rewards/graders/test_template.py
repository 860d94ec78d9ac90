"""Templates: paths, rendering, what is refused, and what is absent."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strop.rewards.grade_arguments import SAMPLE_NAMES
from strop.rewards.graders.template import Absent, TemplateError, Variable, parse_template

SAMPLE: dict[str, Any] = {
    "output_text": "It is 4.",
    "output_json": {"a": {"b": [10, {"c": "deep"}]}, "x y": 1, "list": []},
    "output_tools": [{"id": "c1", "type": "function", "function": {"name": "search", "arguments": "{}"}}],
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "It is 4."}, "finish_reason": "stop"}],
    "stop_reason": "stop",
}
ITEM: dict[str, Any] = {"answer": "4", "level": 3, "metadata": {"tags": ["easy"], "größe": 2.5}, "none": None}


def rendered(text: str) -> str:
    return parse_template(text).render(SAMPLE, ITEM)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("", ""),
        ("{{item.answer}}", "4"),
        ("{{ item.answer }}", "4"),
        ("<{{\n item.answer\t}}>", "<4>"),
        ("{{item.level}}{{item.level}}", "33"),
        ("{{item.metadata.größe}}", "2.5"),
        ("{{ sample.output_tools[0].function.name }}", "search"),
        ("{{sample.output_json.a.b[1].c}}", "deep"),
        ("{{sample.output_json.a.b.0}}", "10"),
        ("{{sample.output_json['x y']}} {{sample.output_json[\"x y\"]}}", "1 1"),
        ("{{sample.choices[0].message.content}}", "It is 4."),
        ('{"is": {{item.level}}}', '{"is": 3}'),
    ],
)
def test_variables_are_replaced_by_what_they_lead_to(text: str, expected: str) -> None:
    assert rendered(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{item.none}}", "null"),
        ("{{item.metadata}}", '{"tags": ["easy"], "größe": 2.5}'),
        ("{{sample.output_json.list}}", "[]"),
    ],
)
def test_what_is_no_string_is_written_as_json(text: str, expected: str) -> None:
    assert rendered(text) == expected


def test_a_value_that_looks_like_a_template_stays_as_it_is() -> None:
    item = {"question": "{{ item.answer }}", "answer": "secret"}
    assert parse_template("{{item.question}}").render(SAMPLE, item) == "{{ item.answer }}"


@pytest.mark.parametrize(
    ("text", "by_model"),
    [
        ("{{item.missing}}", False),
        ("{{item.answer.deeper}}", False),
        ("{{item.metadata.tags[1]}}", False),
        ("{{item.metadata.tags.first}}", False),
        ("{{sample.output_text.words}}", False),
        ("{{sample.choices[0].mesage}}", False),
        ("{{sample.output_json.a.z}}", True),
        ("{{sample.output_tools[1].function.name}}", True),
        ("{{sample.choices[0].message.tool_calls[0].id}}", True),
    ],
)
def test_what_is_absent_is_an_error_that_knows_whose_it_is(text: str, by_model: bool) -> None:
    with pytest.raises(Absent) as caught:
        rendered(text)
    assert (caught.value.by_model, caught.value.unparsed) == (by_model, False)


@pytest.mark.parametrize("text", ["{{sample.output_json}}", "{{sample.output_json.a.b}}"])
def test_an_answer_that_is_no_json_has_no_output_json(text: str) -> None:
    with pytest.raises(Absent, match="the answer is not JSON") as caught:
        parse_template(text).render(SAMPLE | {"output_json": None}, ITEM)
    assert (caught.value.by_model, caught.value.unparsed) == (True, True)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{{item.anwser}}", "there is no 'anwser' in item, which is an object with answer, level, metadata, none"),
        ("{{item.metadata.tags[3]}}", "there is no 3 in item.metadata.tags, which is a list of 1"),
        ("{{item.none.x}}", "there is no 'x' in item.none, which is null"),
        ("{{item.level.x}}", "there is no 'x' in item.level, which is the value 3"),
    ],
)
def test_an_absent_variable_is_named_with_what_is_there(text: str, why: str) -> None:
    with pytest.raises(Absent, match=r"^\{\{ item\.") as caught:
        rendered(text)
    assert str(caught.value).endswith(why)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a {{item.x", "'{{' at character 3 is never closed by '}}'"),
        ("{{}}", "does not begin with item. or sample."),
        ("{{ answer }}", "{{ answer }} does not begin with item. or sample."),
        ("{{items.x}}", "does not begin with item. or sample."),
        ("{{item}}", "{{item}} names nothing in item; write item.name"),
        ("{{item.}}", "is not a path like item.answer"),
        ("{{item.a b}}", "is not a path like item.answer"),
        ("{{item.a[-1]}}", "is not a path like item.answer"),
        ("{{item.a | upper}}", "is not a path like item.answer"),
        ("{{item.__class__()}}", None),
        ("{{sample.ouput_text}}", "a sample has no 'ouput_text'; did you mean 'output_text'?"),
        ("{{sample.output_audio}}", "a sample has no 'output_audio'"),
        ("{{sample[0]}}", "a sample has no 0; it has output_text"),
    ],
)
def test_a_malformed_template_is_refused(text: str, why: str | None) -> None:
    if why is None:  # a strange name, but a name: it leads nowhere
        with pytest.raises(Absent):
            rendered(text)
        return
    with pytest.raises(TemplateError) as caught:
        parse_template(text)
    assert why in str(caught.value)


def test_the_variables_of_a_template_are_known_before_it_is_rendered() -> None:
    template = parse_template("{{item.a}} and {{sample.output_json['b c'][0]}}")
    assert template.parts == (Variable("item", ("a",)), " and ", Variable("sample", ("output_json", "b c", 0)))
    assert list(map(str, template.parts)) == ["item.a", " and ", "sample.output_json['b c'][0]"]


@settings(deadline=None)
@given(st.text(st.sampled_from("{}[]. '\"0aitemsampleoutput_json\n|é"), max_size=40) | st.text(max_size=40))
def test_any_text_is_a_template_or_refused_and_renders_or_lacks_something(text: str) -> None:
    with contextlib.suppress(TemplateError, Absent):
        assert isinstance(rendered(text), str)


@settings(deadline=None)
@given(st.text())
def test_text_without_braces_is_its_own_template(text: str) -> None:
    plain = text.replace("{", "(")
    assert rendered(plain) == plain


keys = st.text(st.characters(exclude_characters="\"'[]{}", exclude_categories=["Cs"]), max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None)
@given(values, st.data())
def test_every_value_can_be_reached_by_its_path(value: Any, data: st.DataObject) -> None:
    path: list[str | int] = ["v"]
    found = value
    while isinstance(found, list | dict) and found and data.draw(st.booleans()):
        step = data.draw(st.sampled_from(list(found) if isinstance(found, dict) else range(len(found))))
        path.append(step)
        found = found[step]
    variable = parse_template(f"{{{{ {Variable('item', tuple(path))} }}}}").parts[0]
    assert isinstance(variable, Variable)
    assert variable.path == tuple(path)
    text = parse_template(f"{{{{ {variable} }}}}").render({}, {"v": value})
    assert text == found if isinstance(found, str) else json.loads(text) == found


def test_every_name_of_a_sample_may_be_asked_for() -> None:
    for name in SAMPLE_NAMES:
        parse_template(f"{{{{sample.{name}}}}}")
