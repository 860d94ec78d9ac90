"""Conversations to ids: the model's own template, and nothing lost on the way."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from models import END, START, TEMPLATE, random_ids, save_tokenizer
from strop.errors import DataError, ModelError
from strop.policy.chat import ChatTemplate
from strop.policy.fetch import resolve
from strop.types import Message, Row, ToolCall

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
QUESTION = Message("user", "How warm is it in Zürich?")
CALL = Message("assistant", "", (ToolCall("call-1", "get_weather", '{"city": "Zürich", "days": 2}'),))
RESULT = Message("tool", '{"degrees": 21, "said by": "the\\n\\"station\\""}', tool_call_id="call-1", name="get_weather")


def row(messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = (), line: int = 3) -> Row:
    return Row("row-1", line, tuple(messages), tuple(tools), None, {})


def chat(folder: Path, template: str | None = TEMPLATE, adds_bos: bool = False, **options: Any) -> ChatTemplate:
    save_tokenizer(folder, template, adds_bos)
    return ChatTemplate(AutoTokenizer.from_pretrained(folder), "my-model", options)


def test_a_prompt_ends_where_the_answer_begins(tmp_path: Path) -> None:
    template = chat(tmp_path)
    ids = template.prompt_ids(row([Message("system", "Be brief."), Message("user", "2 + 2?")]))
    expected = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n2 + 2?<|im_end|>\n<|im_start|>assistant\n"
    assert template.render([Message("system", "Be brief."), Message("user", "2 + 2?")], (), "here") == expected
    assert ids == template.encode(expected)
    assert (ids.count(START), ids.count(END)) == (3, 2)


def test_text_of_sampled_ids_has_no_special_tokens(tmp_path: Path) -> None:
    template = chat(tmp_path)
    assert template.text([*template.encode("four é"), END]) == "four é"


def test_text_of_any_ids_is_text(tmp_path: Path) -> None:
    assert isinstance(chat(tmp_path).text(random_ids(50, 1)), str)


def test_the_first_token_is_not_doubled(tmp_path: Path) -> None:
    template = "{{ bos_token }}{% for message in messages %}{{ message.content }}{% endfor %}"
    tokenizer_adds = chat(tmp_path, template, adds_bos=True)
    assert AutoTokenizer.from_pretrained(tmp_path)("x")["input_ids"][0] == START
    ids = tokenizer_adds.prompt_ids(row([QUESTION]))
    assert ids[0] == START and ids[1] != START


def test_a_model_without_a_template_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="my-model has no chat template; use an instruct or chat model") as caught:
        chat(tmp_path, None)
    assert caught.value.param == "model"


def test_a_message_that_the_template_refuses_is_a_data_error_with_its_line(tmp_path: Path) -> None:
    template = chat(tmp_path, "{{ raise_exception('no system messages, please') }}")
    with pytest.raises(DataError, match=r"line 3: the chat template of my-model refuses .*no system messages, please"):
        template.prompt_ids(row([QUESTION]))


@pytest.mark.parametrize(
    "broken", ["{{ messages | items | list }}", "{{ messages[0].content + 1 }}", "{{ messages[9].x.y }}"]
)
def test_a_template_that_breaks_on_a_row_is_a_data_error_with_its_line(tmp_path: Path, broken: str) -> None:
    with pytest.raises(DataError, match="line 3: the chat template of my-model refuses"):
        chat(tmp_path, broken).prompt_ids(row([QUESTION]))


def test_options_reach_the_template(tmp_path: Path) -> None:
    template = "{{ messages[0].content }}{% if enable_thinking is defined %}|{{ enable_thinking }}{% endif %}"
    for options, expected in (({}, "hi"), ({"enable_thinking": False}, "hi|False")):
        made = chat(tmp_path, template, **options)
        assert made.render([Message("user", "hi")], (), "here") == expected


# Nothing lost


def test_the_default_models_template_drops_tools_and_is_refused_for_it() -> None:
    template = ChatTemplate(AutoTokenizer.from_pretrained(resolve("smollm2-135m")), "smollm2-135m", {})
    with pytest.raises(DataError, match=r"line 3: .* of smollm2-135m drops the tool 'get_weather' from the prompt"):
        template.prompt_ids(row([QUESTION], [WEATHER]))
    with pytest.raises(DataError, match="drops a call of 'get_weather'"):
        template.prompt_ids(row([QUESTION, CALL, RESULT]))
    assert "Zürich" in template.text(template.prompt_ids(row([QUESTION])))


def test_the_default_models_template_adds_a_system_message_where_there_is_none() -> None:
    template = ChatTemplate(AutoTokenizer.from_pretrained(resolve("smollm2-135m")), "smollm2-135m", {})
    assert template.render([QUESTION], (), "here").startswith("<|im_start|>system\nYou are a helpful AI assistant")
    mine = template.render([Message("system", "Mine."), QUESTION], (), "here")
    assert mine.startswith("<|im_start|>system\nMine.<|im_end|>\n<|im_start|>user\n")


@pytest.mark.parametrize(
    ("template", "lost"),
    [
        ("{{ messages[0].content }}", "a call of 'get_weather'"),
        ("{{ messages[0].content }} get_weather", "an argument of 'get_weather'"),
        ("{{ messages[0].content }} {{ messages[1].tool_calls[0] }}", "a tool result"),
    ],
)
def test_a_part_that_the_template_drops_is_named(tmp_path: Path, template: str, lost: str) -> None:
    with pytest.raises(DataError, match=f"line 3: the chat template of my-model drops {lost} from the prompt"):
        chat(tmp_path, template).prompt_ids(row([QUESTION, CALL, RESULT]))


KEEPING = [
    "trl/qwen3.jinja",
    "trl/qwen3_instruct_2507.jinja",
    "trl/qwen3_training.jinja",
    "trl/qwen3_5_think.jinja",
    "trl/qwen3_5_nothink.jinja",
    "trl/qwen2_5.jinja",
    "trl/llama3_1.jinja",
    "trl/llama3_2.jinja",
]


def real(shared_data: Path, folder: Path, name: str, **options: Any) -> ChatTemplate:
    """A template as it is published, over the tiny tokenizer."""
    file = shared_data / "chat_templates" / name
    return chat(folder, file.read_text(encoding="utf-8"), **options)


@pytest.mark.parametrize("name", KEEPING)
def test_templates_of_tool_models_keep_tools_calls_and_results(shared_data: Path, tmp_path: Path, name: str) -> None:
    template = real(shared_data, tmp_path, name)
    conversation = [QUESTION, CALL, RESULT]
    text = template.render(conversation, [WEATHER], "here")
    assert "Weather of a city." in text
    result = RESULT.content if RESULT.content in text else json.dumps(RESULT.content, ensure_ascii=False)
    assert text.index("Weather of a city.") < text.rindex("get_weather") < text.index(result)
    assert template.prompt_ids(row(conversation, [WEATHER])) == template.encode(text)


@pytest.mark.parametrize("name", KEEPING)
def test_arguments_are_written_once_as_json_not_as_quoted_text(shared_data: Path, tmp_path: Path, name: str) -> None:
    text = real(shared_data, tmp_path, name).render([QUESTION, CALL, RESULT], [WEATHER], "here")
    json_form, tag_form = '{"city": "Zürich", "days": 2}', "<parameter=city>\nZürich\n</parameter>"
    assert json_form in text or tag_form in text
    assert '\\"city\\"' not in text


def test_a_malformed_call_of_the_model_is_rendered_as_it_is(shared_data: Path, tmp_path: Path) -> None:
    call = Message("assistant", "", (ToolCall("1", "get_weather", '{"city": '),))
    text = real(shared_data, tmp_path, "trl/qwen3.jinja").render([QUESTION, call], [WEATHER], "here")
    assert '"arguments": {"city": }' in text


def test_thinking_is_turned_off_by_an_option(shared_data: Path, tmp_path: Path) -> None:
    ending = "<|im_start|>assistant\n<think>\n\n</think>\n\n"
    on = real(shared_data, tmp_path, "trl/qwen3.jinja").render([QUESTION], (), "here")
    off = real(shared_data, tmp_path, "trl/qwen3.jinja", enable_thinking=False).render([QUESTION], (), "here")
    assert not on.endswith(ending)
    assert off.endswith(ending)


def test_rendering_does_not_change_the_messages(shared_data: Path, tmp_path: Path) -> None:
    template = real(shared_data, tmp_path, "trl/qwen3.jinja")
    before = CALL.as_dict()
    template.prompt_ids(row([QUESTION, CALL, RESULT], [WEATHER]))
    assert CALL.as_dict() == before
    assert CALL.tool_calls[0].arguments == '{"city": "Zürich", "days": 2}'
