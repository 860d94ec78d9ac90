"""The families of chat templates by how they write tool calls.

`tool_calls` finds out which family a model belongs to. A family is an entry here; its reader
is in `tool_readers`, where several families can share one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from strop.policy.tool_readers import (
    PREFIX,
    Reader,
    named_json,
    read_gemma,
    read_invocations,
    read_json_calls,
    read_json_sequence,
    read_mistral,
    read_python_calls,
    read_tagged,
)


@dataclass(frozen=True)
class Family:
    """How calls are opened, read and closed."""

    opening: re.Pattern[str]
    read: Reader
    closing: re.Pattern[str]
    openings: tuple[str, ...]
    """Literal texts that can begin a call; a stream must hold them back."""
    closed: bool = True
    """Whether a call without its closing is malformed."""
    at_start: bool = False
    """Whether a call can only be the whole answer."""


_NOTHING = re.compile("")
_END_OF_CALL = re.compile(r"\s*</tool_call>")

FAMILIES: Mapping[str, Family] = {
    "hermes": Family(re.compile("<tool_call>"), read_json_calls, _END_OF_CALL, ("<tool_call>",)),
    "qwen_xml": Family(
        re.compile(r"(?:<tool_call>\s*)?(?=<function=)"),
        read_tagged(
            re.compile(r"<function=(?P<name>[^>\n]+)>\s*"),
            re.compile(
                r"<parameter=(?P<key>[^>\n]+)>\n?(?P<value>.*?)\n?</parameter>\s*(?=<parameter=|</function>)", re.DOTALL
            ),
        ),
        re.compile(r"\s*</function>(?:\s*</tool_call>)?"),
        ("<tool_call>", "<function="),
    ),
    "glm": Family(
        re.compile(r"<tool_call>(?!\s*[{<])"),
        read_tagged(
            re.compile(r"\s*(?P<name>[^\s<]+)\s*"),
            re.compile(
                r"<arg_key>(?P<key>[^<]+)</arg_key>\s*<arg_value>(?P<value>.*?)</arg_value>\s*(?=<arg_key>|</tool_call>)",
                re.DOTALL,
            ),
        ),
        _END_OF_CALL,
        ("<tool_call>",),
    ),
    "mistral": Family(
        re.compile(r"\[TOOL_CALLS\]\s*(?=[\[\w])"),
        read_mistral,
        re.compile("(?:</s>)?"),
        ("[TOOL_CALLS]",),
        closed=False,
    ),
    "deepseek": Family(
        re.compile(r"(?:<｜tool▁calls▁begin｜>)?\s*<｜tool▁call▁begin｜>"),
        named_json(
            re.compile(
                r"(?:function<｜tool▁sep｜>(?P<name>[^\s<]+)\s*(?P<fence>```json)|(?P<late_name>[^\s<]+)<｜tool▁sep｜>)"
            ),
            "a name and arguments",
        ),
        re.compile(r"\s*<｜tool▁call▁end｜>(?:\s*<｜tool▁calls▁end｜>)?"),
        ("<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>"),
    ),
    "kimi": Family(
        re.compile(r"(?:<\|tool_calls_section_begin\|>)?\s*<\|tool_call_begin\|>"),
        named_json(
            re.compile(r"\s*(?P<id>(?:functions\.)?(?P<name>[^\s:<]+):\d+)\s*<\|tool_call_argument_begin\|>"),
            "a name and arguments",
        ),
        re.compile(r"\s*<\|tool_call_end\|>(?:\s*<\|tool_calls_section_end\|>)?"),
        ("<|tool_calls_section_begin|>", "<|tool_call_begin|>"),
    ),
    "gpt_oss": Family(
        re.compile(r"(?:<\|start\|>assistant)?(?= to=functions\.|<\|channel\|>commentary to=functions\.)"),
        named_json(
            re.compile(
                r"(?: to=functions\.(?P<name>[\w.-]+))?<\|channel\|>commentary"
                r"(?: to=functions\.(?P<late_name>[\w.-]+))?"
                r"\s*(?:<\|constrain\|>)?(?:json)?<\|message\|>"
            ),
            "a name and a message",
        ),
        re.compile(r"(?:<\|call\|>)?"),
        ("<|start|>assistant", " to=functions.", "<|channel|>commentary to="),
        closed=False,
    ),
    "cohere": Family(
        re.compile(r"<\|START_ACTION\|>"), read_json_calls, re.compile(r"\s*<\|END_ACTION\|>"), ("<|START_ACTION|>",)
    ),
    "json_list": Family(
        re.compile(r"<\|tool_call\|>(?=\s*[\[{])"),
        read_json_calls,
        re.compile(r"(?:\s*<\|/tool_call\|>)?"),
        ("<|tool_call|>",),
        closed=False,
    ),
    "lfm2": Family(
        re.compile(r"<\|tool_call_start\|>"),
        read_python_calls,
        re.compile(r"\s*<\|tool_call_end\|>"),
        ("<|tool_call_start|>",),
    ),
    "gemma": Family(re.compile(r"<\|tool_call>"), read_gemma, re.compile(r"<tool_call\|>"), ("<|tool_call>",)),
    "invoke": Family(
        re.compile(
            r"(?:<\|eom\|>)?(?:<\|start\|>assistant)?(?: to=\S+?<\|message\|>)?"
            rf"<{PREFIX}(?:function_calls|tool_calls?)>\s*(?=<{PREFIX}invoke )"
        ),
        read_invocations,
        re.compile(rf"\s*</{PREFIX}(?:function_calls|tool_calls?)>"),
        ("<minimax:tool_call>", "<atem:function_calls>", "<｜DSML｜function_calls>", "<function_calls>", " to="),
    ),
    "llama_json": Family(
        re.compile(r'\A\s*(?:<\|python_tag\|>)?\s*(?=\{[^{}]*"(?:parameters|arguments)"\s*:)'),
        read_json_sequence,
        _NOTHING,
        ("{", "<|python_tag|>"),
        at_start=True,
    ),
    "pythonic": Family(
        re.compile(r"\A\s*(?:<\|python_start\|>)?(?=\[\s*[A-Za-z_][\w.]*\()"),
        read_python_calls,
        re.compile(r"(?:<\|python_end\|>)?"),
        ("[", "<|python_start|>"),
        at_start=True,
    ),
}
"""The families by name. A template is proved against them in this order."""
