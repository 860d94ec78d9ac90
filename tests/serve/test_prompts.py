"""From OpenAI's messages to the ids of a prompt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from models import save_tokenizer
from strop.errors import InvalidRequest
from strop.serve.prompts import prompt_ids
from strop.serve.wire import ChatRequest

TEMPLATE = (
    "{% if tools %}{{ tools | tojson }}{% endif %}"
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}"
    "{% for call in m.tool_calls or [] %}{{ call.function.name }}{{ call.function.arguments | tojson }}{% endfor %}"
    "{% endfor %}{% if not quiet %}[assistant]{% endif %}"
)
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> PreTrainedTokenizerBase:
    folder = tmp_path_factory.mktemp("tokenizer")
    save_tokenizer(Path(folder), TEMPLATE)
    return AutoTokenizer.from_pretrained(folder)


def rendered(tokenizer: PreTrainedTokenizerBase, *messages: Any, **settings: Any) -> str:
    return str(tokenizer.decode(prompt_ids(ChatRequest("1", "tiny", messages, **settings), tokenizer)))


def test_text_parts_and_missing_content_are_read(tokenizer: PreTrainedTokenizerBase) -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    call = {"id": "1", "type": "function", "function": {"name": "look", "arguments": '{"at": "sea"}'}}
    found = rendered(
        tokenizer,
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": parts},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "blue"},
        tools=(TOOL,),
    )
    assert '"name": "look"' in found
    assert '[system]Be brief.[user]ab[assistant]look{"at": "sea"}[tool]blue[assistant]' in found


def test_options_go_to_the_template(tokenizer: PreTrainedTokenizerBase) -> None:
    assert rendered(tokenizer, {"role": "user", "content": "x"}, template={"quiet": True}) == "[user]x"


@pytest.mark.parametrize(
    ("messages", "says", "param"),
    [
        ((), "at least one", "messages"),
        (({"role": "robot", "content": "x"},), r"messages\[0\].role: 'robot'", "messages[0]"),
        (({"content": "x"},), r"messages\[0\].role: None", "messages[0]"),
        (({"role": ["user"], "content": "x"},), "role", "messages[0]"),
        (
            ({"role": "user", "content": [{"type": "image_url", "image_url": {}}]},),
            r"content\[0\]: only text",
            "messages[0].content",
        ),
        (({"role": "user", "content": 7},), "only text", "messages[0].content"),
        (({"role": "assistant", "tool_calls": [{"id": "1"}]},), "tool_calls", "messages[0].tool_calls[0]"),
        (({"role": "assistant", "tool_calls": ["x"]},), "tool_calls", "messages[0].tool_calls[0]"),
    ],
)
def test_messages_that_cannot_be_read_are_the_clients_fault(
    tokenizer: PreTrainedTokenizerBase, messages: tuple[Any, ...], says: str, param: str
) -> None:
    with pytest.raises(InvalidRequest, match=says) as caught:
        prompt_ids(ChatRequest("1", "tiny", messages), tokenizer)
    assert caught.value.param == param


def test_tools_that_the_template_drops_are_refused(tmp_path: Path) -> None:
    save_tokenizer(tmp_path)  # whose template knows no tools
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    with pytest.raises(InvalidRequest, match="the chat template of tiny drops the tool 'look'"):
        rendered(tokenizer, {"role": "user", "content": "x"}, tools=(TOOL,))


@pytest.mark.parametrize("option", ["chat_template", "tools", "tokenize", "continue_final_message", "messages"])
def test_arguments_of_the_rendering_call_are_no_options(tokenizer: PreTrainedTokenizerBase, option: str) -> None:
    with pytest.raises(InvalidRequest, match=f"{option} is no option"):
        rendered(tokenizer, {"role": "user", "content": "x"}, template={option: "x"})
