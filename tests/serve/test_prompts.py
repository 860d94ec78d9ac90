"""The ids of a prompt: from messages, text, or ids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from models import save_tokenizer
from strop.errors import InvalidRequest
from strop.serve.generate import Conversation, GenerateRequest
from strop.serve.messages import read_messages
from strop.serve.prompts import prompt_ids

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
    conversation = Conversation(read_messages(messages), **settings)
    return str(tokenizer.decode(prompt_ids(GenerateRequest("tiny", conversation), tokenizer)))


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


def test_a_prompt_can_end_before_the_answer_is_opened(tokenizer: PreTrainedTokenizerBase) -> None:
    assert rendered(tokenizer, {"role": "user", "content": "x"}, add_generation_prompt=False).endswith("x[assistant]")


@pytest.mark.parametrize(
    ("prompt", "says"),
    [("", "no tokens"), ((5, 100_000), "100000 is not a token id of tiny"), ((-1,), "-1 is not a token id")],
)
def test_text_and_ids_that_make_no_prompt_are_refused(
    tokenizer: PreTrainedTokenizerBase, prompt: str | tuple[int, ...], says: str
) -> None:
    with pytest.raises(InvalidRequest, match=says) as caught:
        prompt_ids(GenerateRequest("tiny", prompt), tokenizer)
    assert caught.value.param == "prompt"


def test_text_is_encoded_and_ids_stay_as_they_are(tokenizer: PreTrainedTokenizerBase) -> None:
    ids = tuple(tokenizer("the sea")["input_ids"])
    assert prompt_ids(GenerateRequest("tiny", "the sea"), tokenizer) == ids
    assert prompt_ids(GenerateRequest("tiny", ids[::-1]), tokenizer) == ids[::-1]


def test_tools_that_the_template_drops_are_refused(tmp_path: Path) -> None:
    save_tokenizer(tmp_path)  # whose template knows no tools
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    with pytest.raises(InvalidRequest, match="the chat template of tiny drops the tool 'look'"):
        rendered(tokenizer, {"role": "user", "content": "x"}, tools=(TOOL,))


@pytest.mark.parametrize("option", ["chat_template", "tools", "tokenize", "continue_final_message", "messages"])
def test_arguments_of_the_rendering_call_are_no_options(tokenizer: PreTrainedTokenizerBase, option: str) -> None:
    with pytest.raises(InvalidRequest, match=f"{option} is not an option"):
        rendered(tokenizer, {"role": "user", "content": "x"}, template={option: "x"})
