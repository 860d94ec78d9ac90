"""Tool calls: each template's way of writing them is found, and read back exactly."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.utils.chat_template_utils import render_jinja_template

from models import TEMPLATE
from strop.policy.tool_calls import DEFAULT_FORMAT, ToolCallFormat, find_format
from strop.policy.tool_families import FAMILIES
from strop.types import Json
from tool_templates import BEGIN, END, OWN

FOUND = {
    "llama3_1": "llama_json",
    "llama3_2": "llama_json",
    "qwen2_5": "hermes",
    "qwen2_5_training": "hermes",
    "qwen3": "hermes",
    "qwen3_training": "hermes",
    "qwen3_instruct_2507": "hermes",
    "qwen3_5_think": "qwen_xml",
    "qwen3_5_nothink": "qwen_xml",
    "gptoss": "gpt_oss",
}
"""The templates of the public data that write calls, and how."""

TYPES = {
    "text": "string",
    "whole": "integer",
    "ratio": "number",
    "flag": "boolean",
    "things": "array",
    "table": "object",
}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": "Does it.",
            "parameters": {"type": "object", "properties": {key: {"type": kind} for key, kind in TYPES.items()}},
        },
    }
    for name in ("find_it", "v2.get-weather")
]


@dataclass(frozen=True)
class Template:
    """A chat template alone, without a tokenizer."""

    text: str

    def render(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]], begin_answer: bool) -> str:
        rendered, _ = render_jinja_template(
            [messages], tools=tools, chat_template=self.text, add_generation_prompt=begin_answer, bos_token="<s>"
        )
        return str(rendered[0])

    def answer(self, found: ToolCallFormat, calls: Sequence[tuple[str, Mapping[str, Json]]]) -> str:
        """What the template writes behind the question for these calls."""
        form = [
            {
                "id": f"number{index:03}",
                "type": "function",
                "function": {
                    "name": name,
                    "arguments": json.dumps(arguments) if found.arguments_as_text else dict(arguments),
                },
            }
            for index, (name, arguments) in enumerate(calls)
        ]
        question = {"role": "user", "content": "What is it?"}
        content = None if found.content_as_null else ""
        whole = self.render([question, {"role": "assistant", "content": content, "tool_calls": form}], TOOLS, False)
        prompt = self.render([question], TOOLS, True)
        return whole.removeprefix(prompt) if whole.startswith(prompt) else whole.rpartition("What is it?")[2]


def public(shared_data: Path, name: str) -> Template:
    return Template((shared_data / "chat_templates" / "trl" / f"{name}.jinja").read_text())


def read(found: ToolCallFormat, text: str) -> list[tuple[str, Json]]:
    return [(call.name, json.loads(call.arguments)) for call in found.parse(text, TOOLS).calls]


# Which format a template writes


@pytest.mark.parametrize(("name", "family"), FOUND.items())
def test_the_format_of_a_public_template_is_found(name: str, family: str, shared_data: Path) -> None:
    found = find_format(public(shared_data, name).render)
    assert (found.name, found.proved) == (family, True)


@pytest.mark.parametrize("case", OWN)
def test_the_format_of_a_template_of_its_own_is_found(case: str) -> None:
    family, text = OWN[case]
    found = find_format(Template(text).render)
    assert (found.name, found.proved) == (family, True)


def test_every_template_of_trl_that_writes_calls_is_proved() -> None:
    trl = find_spec("trl")
    assert trl is not None and trl.origin is not None
    files = sorted((Path(trl.origin).parent / "chat_templates").glob("*.jinja"))
    writing = [file for file in files if "tool_call" in file.read_text()]
    assert len(writing) > 20
    assert [file.name for file in writing if not find_format(Template(file.read_text()).render).proved] == []


@pytest.mark.parametrize("text", [TEMPLATE, "{{ raise_exception('no tools') }}", "{{ messages[5].content + 1 }}"])
def test_a_template_that_writes_no_calls_gets_the_default(text: str) -> None:
    found = find_format(Template(text).render)
    assert found == DEFAULT_FORMAT
    assert (found.name, found.proved) == ("hermes", False)


def test_a_template_that_wants_arguments_as_text_says_so() -> None:
    text = BEGIN + (
        "{% for c in m.tool_calls %}<tool_call>"
        "{{ '{\"name\": \"' + c.function.name + '\", \"arguments\": ' + c.function.arguments + '}' }}"
        "</tool_call>{% endfor %}"
    )
    found = find_format(Template(text + END).render)
    assert (found.name, found.arguments_as_text, found.content_as_null) == ("hermes", True, False)


def test_a_template_that_writes_calls_beside_no_content_only_says_so() -> None:
    text = BEGIN + (
        "{% if m.content is none %}{% for c in m.tool_calls %}"
        "<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}{% endif %}"
    )
    found = find_format(Template(text + END).render)
    assert (found.proved, found.content_as_null) == (True, True)


# Reading back what a template writes

scalars = st.one_of(st.integers(-(10**12), 10**12), st.booleans(), st.floats(allow_nan=False, allow_infinity=False))


def calls_with(characters: st.SearchStrategy[str], several: bool = True) -> st.SearchStrategy[Any]:
    """Calls whose arguments fit the schemas of the tools."""
    values: dict[str, st.SearchStrategy[Any]] = {
        "text": characters,
        "whole": st.integers(-(10**15), 10**15),
        "ratio": st.floats(allow_nan=False, allow_infinity=False),
        "flag": st.booleans(),
        "things": st.lists(st.one_of(scalars, characters), max_size=3),
        "table": st.dictionaries(st.sampled_from(["a", "b_c", "key"]), st.one_of(scalars, characters), max_size=2),
    }
    call = st.tuples(st.sampled_from(["find_it", "v2.get-weather"]), st.fixed_dictionaries({}, optional=values))
    return st.lists(call, min_size=1, max_size=3 if several else 1)


words = st.text(st.sampled_from("abcXYZ019 _-.,:;!?/äß語😀"), max_size=20)
ONE_CALL = ("llama_json", "gpt_oss")


@pytest.mark.parametrize("name", FOUND)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_calls_that_a_public_template_writes_are_read_back(name: str, shared_data: Path, data: st.DataObject) -> None:
    template = public(shared_data, name)
    found = find_format(template.render)
    # In tags, text stands as it is: there, text with tags of its own cannot be told apart.
    texts = words if found.name == "qwen_xml" else st.text(max_size=20)
    calls = data.draw(calls_with(texts, several=found.name not in ONE_CALL))
    assert read(found, template.answer(found, calls)) == calls


@pytest.mark.parametrize("case", [case for case in OWN if case != "llama 4, in Python"])
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_calls_that_a_template_of_its_own_writes_are_read_back(case: str, data: st.DataObject) -> None:
    template = Template(OWN[case][1])
    found = find_format(template.render)
    calls = data.draw(calls_with(words if found.name == "invoke" else st.text(max_size=20)))
    assert read(found, template.answer(found, calls)) == calls


def format_of(family: str) -> ToolCallFormat:
    return ToolCallFormat(family, FAMILIES[family])


LITERALS = (
    r"""[find_it(text='it\'s "so"', whole=-3, ratio=2.5e-3, flag=True, things=["a", 'b', None], table={'k': [1]})]"""
)


def test_python_calls_are_read_with_literals_of_python_and_json() -> None:
    expected = {
        "text": 'it\'s "so"',
        "whole": -3,
        "ratio": 2.5e-3,
        "flag": True,
        "things": ["a", "b", None],
        "table": {"k": [1]},
    }
    assert read(format_of("pythonic"), LITERALS) == [("find_it", expected)]


def test_python_code_is_not_run() -> None:
    parsed = format_of("pythonic").parse('[find_it(text=__import__("os").getcwd())]', TOOLS)
    assert parsed.calls == ()
    assert len(parsed.malformed) == 1


def test_text_in_tags_is_typed_by_the_schema() -> None:
    text = (
        "<tool_call>\n<function=find_it>\n<parameter=text>\n007\n</parameter>\n<parameter=whole>\n7\n</parameter>\n"
        "<parameter=flag>\nFalse\n</parameter>\n<parameter=other>\n[1]\n</parameter>\n</function>\n</tool_call>"
    )
    expected = {"text": "007", "whole": 7, "flag": False, "other": [1]}
    assert read(format_of("qwen_xml"), text) == [("find_it", expected)]


def test_llama_writes_several_calls_with_semicolons() -> None:
    text = '<|python_tag|>{"name": "a", "parameters": {"x": 1}}; {"name": "b", "parameters": {}}'
    assert read(format_of("llama_json"), text) == [("a", {"x": 1}), ("b", {})]


def test_gpt_oss_may_name_the_function_behind_the_channel() -> None:
    text = (
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.find_it "
        '<|constrain|>json<|message|>{"whole": 1}<|call|>'
    )
    parsed = format_of("gpt_oss").parse(text, TOOLS)
    assert [(call.name, call.arguments) for call in parsed.calls] == [("find_it", '{"whole": 1}')]
    assert parsed.content == "<|channel|>analysis<|message|>Hm.<|end|>"


def test_arguments_that_are_json_text_once_more_are_taken_as_the_object() -> None:
    text = '<tool_call>{"name": "find_it", "arguments": "{\\"whole\\": 1}"}</tool_call>'
    assert read(DEFAULT_FORMAT, text) == [("find_it", {"whole": 1})]


# Content, ids, and calls that cannot be read


def test_the_content_is_the_text_around_the_calls() -> None:
    text = 'Let me see.\n<tool_call>\n{"name": "a", "arguments": {"x": "é"}}\n</tool_call>\n'
    parsed = DEFAULT_FORMAT.parse(text)
    assert parsed.content == "Let me see."
    assert [(call.name, call.arguments) for call in parsed.calls] == [("a", '{"x": "é"}')]
    assert parsed.malformed == ()


def test_an_answer_without_calls_is_left_as_it_is() -> None:
    for family in FAMILIES:
        parsed = format_of(family).parse(" 2 < 3, so {yes} [no] \n")
        assert (parsed.content, parsed.calls, parsed.malformed) == (" 2 < 3, so {yes} [no] \n", (), ())


def test_a_json_answer_is_no_call_of_llama() -> None:
    text = '{"name": "Ada", "age": 36}'
    parsed = format_of("llama_json").parse(text)
    assert (parsed.content, parsed.calls, parsed.malformed) == (text, (), ())


def test_ids_are_the_models_own_or_made_from_the_answer() -> None:
    own = format_of("mistral").parse('[TOOL_CALLS] [{"name": "a", "arguments": {}, "id": "abc123XYZ"}]')
    assert [call.id for call in own.calls] == ["abc123XYZ"]
    text = '<tool_call>{"name": "a", "arguments": {}}</tool_call>' * 2
    first, again = DEFAULT_FORMAT.parse(text), DEFAULT_FORMAT.parse(text)
    assert first == again
    ids = [call.id for call in first.calls]
    assert len(set(ids)) == 2
    assert all(len(made) == 9 and made.isalnum() for made in ids)


GOOD = '<tool_call>{"name": "good", "arguments": {}}</tool_call>'


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ('<tool_call>{"name": "a", "arguments": {</tool_call>', "Expecting property name"),
        ('<tool_call>{"name": "a", "arguments": {}}', "not closed"),
        ('<tool_call>{"arguments": {}}</tool_call>', "no name"),
        ('<tool_call>{"name": "a", "arguments": [1]}</tool_call>', "the arguments are list, expected an object"),
        ('<tool_call>{"name": "a", "arguments": {"x": NaN}}</tool_call>', "NaN is not JSON"),
        ('<tool_call>{"name": "a", "arguments": {"x": 1e999}}</tool_call>', "Out of range float"),
        ('<tool_call>{"name": "a", "arguments": {"x": "\\ud800"}}</tool_call>', "half a character"),
        ("<tool_call>7</tool_call>", "a call is int, expected an object"),
        ("<tool_call>" + "[" * 100_000, "recursion"),
    ],
)
def test_a_malformed_call_stays_in_the_text_and_is_reported(bad: str, reason: str) -> None:
    parsed = DEFAULT_FORMAT.parse(f"Now: {bad} {GOOD}")
    assert [call.name for call in parsed.calls] == ["good"]
    assert parsed.content == f"Now: {bad}"
    (fault,) = parsed.malformed
    assert fault.startswith("the tool call at character 5 cannot be read: ")
    assert reason in fault


MARKS = sorted({mark for family in FAMILIES.values() for mark in family.openings})
PIECES = [
    *MARKS,
    '{"name": "a", "arguments": {}}',
    "[",
    "]",
    "{",
    "}",
    "</tool_call>",
    "a(b=",
    "call:x{",
    "\\",
    "'",
    '"',
]


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=100, deadline=None)
@given(pieces=st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=5)), max_size=12))
def test_no_text_makes_a_reader_raise(family: str, pieces: list[str]) -> None:
    text = "".join(pieces)
    parsed = format_of(family).parse(text, [{"function": {"name": "a", "parameters": {"properties": 3}}}, {"x": 1}])
    assert parsed.calls or parsed.content == text


# Streams


@pytest.mark.parametrize("case", OWN)
def test_a_stream_never_sends_a_part_of_a_call(case: str) -> None:
    template = Template(OWN[case][1])
    found = find_format(template.render)
    before = "" if found.family.at_start else "I look: 1 < 2, [so], "
    text = before + template.answer(found, [("find_it", {"text": "here"})]).removesuffix("</s>")
    sent = 0
    for end in range(len(text) + 1):
        sent = max(sent, found.safe_length(text[:end]))
    assert found.parse(text, TOOLS).content == text[:sent].strip() == before.strip()


def test_a_stream_of_plain_text_is_sent_up_to_what_may_become_a_call() -> None:
    assert DEFAULT_FORMAT.safe_length("It is 5 <") == len("It is 5 ")
    assert DEFAULT_FORMAT.safe_length("It is 5 < 6") == len("It is 5 < 6")
    llama = format_of("llama_json")
    assert llama.safe_length('{"na') == 0
    assert llama.safe_length("Well {") == len("Well {")
