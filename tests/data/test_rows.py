"""Rows: prompt, reference answer, tools, and everything that is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strop.data.faults import Fault
from strop.data.rows import build_row, check_rows, fingerprint, load_rows, refuse_overlap
from strop.errors import DataError
from strop.types import Message, Row, ToolCall

Write = Callable[..., Path]

SYSTEM = {"role": "system", "content": "Answer with the final number only."}
USER = {"role": "user", "content": "A box holds 12 eggs. How many eggs are in 17 boxes?"}
ANSWER = {"role": "assistant", "content": "204"}
CALL = {"id": "call_1", "type": "function", "function": {"name": "lookup", "arguments": '{"q": "eggs"}'}}
CALLS = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "12"}


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes objects as a JSONL file."""

    def write_rows(*rows: Any, name: str = "rows.jsonl") -> Path:
        path = tmp_path / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return path

    return write_rows


def row(*messages: Any, **fields: Any) -> Row:
    built = build_row(1, {"messages": list(messages), **fields})
    assert isinstance(built, Row), built
    return built


def faults(*messages: Any, **fields: Any) -> list[Fault]:
    built = build_row(1, {"messages": list(messages), **fields})
    assert not isinstance(built, Row)
    return built


# Prompt and reference.


def test_a_prompt_needs_no_answer() -> None:
    built = row(SYSTEM, USER)
    assert built.messages == (Message("system", SYSTEM["content"]), Message("user", USER["content"]))
    assert built.reference is None


def test_a_final_assistant_turn_is_the_reference_and_not_in_the_prompt() -> None:
    built = row(SYSTEM, USER, ANSWER)
    assert built.messages == row(SYSTEM, USER).messages
    assert built.reference == "204"


def test_ground_truth_wins_over_the_final_turn() -> None:
    built = row(USER, ANSWER, metadata={"ground_truth": "two hundred and four"})
    assert built.reference == "two hundred and four"
    assert [message.role for message in built.messages] == ["user"]


@pytest.mark.parametrize("truth", ["204", 204, 2**70, 0, False, "", [], {"schema": {"type": "object"}}])
def test_ground_truth_may_be_any_json(truth: Any) -> None:
    built = row(USER, metadata={"ground_truth": truth})
    assert built.reference == truth
    assert type(built.reference) is type(truth)


def test_a_null_ground_truth_counts_as_absent() -> None:
    assert row(USER, ANSWER, metadata={"ground_truth": None}).reference == "204"


def test_a_final_tool_call_is_the_reference_as_the_file_has_it() -> None:
    built = row(USER, CALLS)
    assert built.reference == CALLS
    assert [message.role for message in built.messages] == ["user"]


def test_only_the_final_assistant_turn_is_cut() -> None:
    built = row(USER, ANSWER, USER)
    assert [message.role for message in built.messages] == ["user", "assistant", "user"]
    assert built.reference is None


def test_developer_is_the_system_role() -> None:
    assert row({"role": "developer", "content": "Be brief."}, USER).messages[0].role == "system"


def test_a_prompt_string_is_one_user_turn() -> None:
    built = build_row(4, {"prompt": "2 + 2 =", "ground_truth": "4"})
    assert isinstance(built, Row)
    assert built.messages == (Message("user", "2 + 2 ="),)
    assert built.line == 4
    assert built.fields == {"prompt": "2 + 2 =", "ground_truth": "4"}
    assert built.reference is None


def test_messages_win_over_a_prompt_string() -> None:
    assert row(USER, prompt="something else").messages == row(USER).messages


def test_text_parts_are_joined_as_they_are() -> None:
    parts = [{"type": "text", "text": "2 + 2"}, {"type": "text", "text": " ="}]
    assert row({"role": "user", "content": parts}).messages[0].content == "2 + 2 ="


def test_all_fields_are_kept() -> None:
    fields = {"messages": [USER, ANSWER], "target": "77", "id": 3, "metadata": {"rubric": "short"}}
    built = build_row(1, fields)
    assert isinstance(built, Row)
    assert built.fields == fields


# Tools.


def test_tool_turns_keep_calls_ids_and_names() -> None:
    tools = [{"type": "function", "function": {"name": "lookup", "parameters": {"type": "object"}}}]
    built = row(USER, CALLS, RESULT | {"name": "lookup"}, tools=tools)
    assert built.tools == tuple(tools)
    assert built.messages[1:] == (
        Message("assistant", "", (ToolCall("call_1", "lookup", '{"q": "eggs"}'),)),
        Message("tool", "12", tool_call_id="call_1", name="lookup"),
    )


def test_arguments_may_be_an_object() -> None:
    call = CALL | {"function": {"name": "lookup", "arguments": {"q": "Eier für 3 €"}}}
    assert row(USER, CALLS | {"tool_calls": [call]}, RESULT).messages[1].tool_calls[0].arguments == (
        '{"q": "Eier für 3 €"}'
    )


def test_calls_and_tool_turns_may_do_without_ids() -> None:
    call = {"type": "function", "function": CALL["function"]}
    built = row(USER, CALLS | {"tool_calls": [call, call]}, {"role": "tool", "content": "12"})
    first, second = built.messages[1].tool_calls
    assert first.id != second.id
    assert built.messages[2].tool_call_id is None


def test_an_empty_tool_result_is_a_result() -> None:
    assert row(USER, CALLS, RESULT | {"content": ""}).messages[2].content == ""


@pytest.mark.parametrize("key", ["tools", "metadata"])
def test_null_stands_for_an_absent_key(key: str) -> None:
    assert row(USER, **{key: None}).tools == ()


# What is refused.


@pytest.mark.parametrize(
    ("fields", "kind", "words"),
    [
        ({}, "messages", "the object is empty"),
        ({"question": "?", "answer": "!"}, "messages", "only the keys question, answer"),
        ({"prompt": [USER]}, "messages", "prompt is a list"),
        ({"messages": None}, "messages", "no messages"),
        ({"messages": []}, "messages", "an empty list"),
        ({"messages": "hello"}, "messages", "the string 'hello'"),
        ({"messages": ["hello"]}, "messages", "messages[0] is the string 'hello'"),
        ({"messages": [{"content": "hello"}]}, "role", "messages[0].role is missing"),
        ({"messages": [USER, {"role": "gpt", "content": "x"}]}, "role", "messages[1].role is the string 'gpt'"),
        ({"messages": [{"role": ["user"], "content": "x"}]}, "role", "a list"),
        ({"messages": [{"role": "user"}]}, "content", "messages[0].content is missing"),
        ({"messages": [USER | {"content": 7}]}, "content", "the number 7"),
        ({"messages": [USER, {"role": "assistant", "content": None}]}, "content", "messages[1].content is missing"),
        ({"messages": [USER | {"content": " \n\u00a0"}]}, "empty message", "messages[0] (user) is empty"),
        ({"messages": [SYSTEM | {"content": ""}, USER]}, "empty message", "messages[0] (system)"),
        ({"messages": [USER | {"content": []}]}, "empty message", "is empty"),
        ({"prompt": ""}, "empty message", "is empty"),
        ({"messages": [USER | {"content": [{"type": "image_url"}]}]}, "content", "type is the string 'image_url'"),
        ({"messages": [USER | {"content": ["text"]}]}, "content", "content[0] is the string 'text'"),
        ({"messages": [USER | {"content": [{"type": "text"}]}]}, "content", "content[0].text is null"),
        ({"messages": [USER | {"name": 3}]}, "messages", "messages[0].name is the number 3"),
        ({"messages": [ANSWER]}, "prompt", "no prompt is left"),
        ({"messages": [USER, ANSWER, ANSWER]}, "prompt", "two assistant turns at the end"),
        ({"messages": [USER, CALLS, ANSWER]}, "prompt", "two assistant turns at the end"),
        ({"messages": [USER | {"tool_calls": [CALL]}]}, "tool calls", "messages[0] (user) has tool_calls"),
        ({"messages": [USER, CALLS | {"tool_calls": CALL}]}, "tool calls", "an object"),
        ({"messages": [USER, CALLS | {"tool_calls": ["f"]}]}, "tool calls", "tool_calls[0] has no function.name"),
        ({"messages": [USER, CALLS | {"tool_calls": []}]}, "content", "content is missing"),
        ({"messages": [USER, CALLS | {"tool_calls": [CALL | {"id": 1}]}]}, "tool calls", "id is the number 1"),
        ({"messages": [USER, RESULT]}, "tool turns", "is a tool turn without a preceding tool call"),
        (
            {"messages": [USER, CALLS, RESULT | {"tool_call_id": "x"}]},
            "tool turns",
            "'x' does not match any earlier tool call",
        ),
        ({"messages": [USER], "tools": {}}, "tools", "tools is an object"),
        ({"messages": [USER], "tools": [{"name": "f"}]}, "tools", "tools[0] has no function.name"),
        ({"messages": [USER], "metadata": "easy"}, "metadata", "the string 'easy'"),
        ({"messages": [USER], "metadata": []}, "metadata", "a list"),
    ],
)
def test_a_faulty_row_is_refused(fields: dict[str, Any], kind: str, words: str) -> None:
    found = build_row(7, fields)
    assert isinstance(found, list)
    assert [(fault.line, fault.kind) for fault in found] == [(7, kind)]
    assert words in found[0].problem
    assert found[0].remedy


@pytest.mark.parametrize("arguments", [None, 3, "", "{", "[1]", '{"a": NaN}', "[" * 100_000])
def test_arguments_must_be_an_object(arguments: Any) -> None:
    call = CALL | {"function": {"name": "lookup", "arguments": arguments}}
    (fault,) = faults(USER, CALLS | {"tool_calls": [call]})
    assert "messages[1].tool_calls[0].function.arguments" in fault.problem


@pytest.mark.parametrize(("role", "better"), [("human", "user"), ("gpt", "assistant"), ("function", "tool")])
def test_roles_of_other_formats_come_with_the_right_name(role: str, better: str) -> None:
    assert repr(better) in faults({"role": role, "content": "x"})[0].remedy


def test_a_row_shows_all_its_faults() -> None:
    found = faults(USER | {"content": ""}, {"role": "gpt", "content": "x"}, tools=3, metadata=4)
    assert [fault.kind for fault in found] == ["metadata", "tools", "empty message", "role"]


# Files.


def test_rows_know_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('\n{"prompt": "a"}\n\n{"prompt": "b"}')
    assert [built.line for built in load_rows(path)] == [2, 4]


def test_all_faults_of_a_file_come_in_one_error(write: Write) -> None:
    path = write({"messages": [USER]}, {"messages": []}, [], {"prompt": " "})
    with pytest.raises(DataError) as caught:
        load_rows(path)
    lines = caught.value.message.splitlines()
    assert [line.split(": ")[0] for line in lines] == [f"{path}:{number}" for number in (2, 3, 4)]
    assert lines[0] == f'{path}:2: messages is an empty list; write a list like [{{"role": "user", "content": …}}]'


def test_twenty_faults_are_shown_and_the_rest_counted(write: Write) -> None:
    path = write(*[{"prompt": ""}] * 25, *[[]] * 3)
    with pytest.raises(DataError) as caught:
        load_rows(path)
    lines = caught.value.message.splitlines()
    assert len(lines) == 21
    assert lines[-1] == f"{path}: and 8 more: 5 of 'empty message', 3 of 'not an object'"


def test_a_fault_of_the_whole_file_has_no_line_number(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        load_rows(tmp_path / "missing.jsonl")
    assert caught.value.message.startswith(f"{tmp_path / 'missing.jsonl'}: cannot be read: No such file")


def test_a_report_counts_without_raising(write: Write) -> None:
    tools = [{"type": "function", "function": {"name": "lookup"}}]
    plain = {"messages": [USER], "target": None}
    path = write(plain, plain, {"messages": [USER, ANSWER], "tools": tools, "metadata": {"level": 1}}, {"messages": []})
    report = check_rows(path)
    assert report.counts == {"rows": 3, "with_reference": 1, "with_tools": 1, "repeated": 1, "faults": 1}
    assert report.coverage == {"messages": 3, "tools": 1, "metadata": 1, "metadata.level": 1}
    assert report.explain().startswith(f"{path}:4: messages is an empty list")


def test_a_report_is_plain_json(write: Write) -> None:
    report = check_rows(write({"messages": [USER]}, {"messages": []}))
    as_json = json.loads(json.dumps(report.as_dict()))
    assert as_json["rows"] == 1
    assert as_json["fault_kinds"] == {"messages": 1}
    assert as_json["first_faults"][0]["line"] == 2


def test_a_clean_report_explains_nothing(write: Write) -> None:
    report = check_rows(write({"messages": [USER]}))
    assert report.faults == () and report.explain() == ""


# Identity.


def test_an_id_depends_on_content_alone() -> None:
    first = build_row(1, {"messages": [USER], "a": 1, "b": 2.5})
    second = build_row(9, {"b": 2.5, "a": 1, "messages": [dict(reversed(USER.items()))]})
    assert isinstance(first, Row) and isinstance(second, Row)
    assert first.id == second.id
    assert len(first.id) == 12 and int(first.id, 16) >= 0
    assert row(USER, a=1).id != row(USER, a=2).id


def test_the_id_of_a_row_is_the_same_in_every_version() -> None:
    assert row(USER).id == "5b1f7b839fc8"


def test_repeated_rows_get_numbered_ids(write: Write) -> None:
    other = {"prompt": "other"}
    rows = load_rows(write({"messages": [USER]}, other, {"messages": [USER]}, {"messages": [USER]}))
    first = rows[0].id
    assert [built.id for built in rows] == [first, rows[1].id, f"{first}-2", f"{first}-3"]


def test_a_fingerprint_tells_content_and_order(write: Write) -> None:
    rows = load_rows(write({"prompt": "a"}, {"prompt": "b"}))
    spaced = write(name="spaced.jsonl")
    spaced.write_text('\n{"prompt":"a"}\r\n\n{"prompt":"b"}')
    assert fingerprint(load_rows(spaced)) == fingerprint(rows)
    assert fingerprint(rows[::-1]) != fingerprint(rows)
    assert fingerprint(rows[:1]) != fingerprint(rows)
    assert fingerprint(load_rows(write({"prompt": "a"}, {"prompt": "c"}))) != fingerprint(rows)


# Training and validation.


def test_disjoint_files_pass() -> None:
    refuse_overlap([row(USER)], [row(SYSTEM, USER)], "train.jsonl", "valid.jsonl")


def test_a_prompt_in_both_files_is_refused_with_both_lines(write: Write) -> None:
    train = load_rows(write({"prompt": "a"}, {"messages": [USER]}, name="train.jsonl"))
    validation = load_rows(write({"messages": [USER, ANSWER], "metadata": {"level": 3}}, name="valid.jsonl"))
    with pytest.raises(DataError) as caught:
        refuse_overlap(train, validation, "train.jsonl", "valid.jsonl")
    assert "valid.jsonl:1: same prompt as train.jsonl:2" in caught.value.message


def test_the_same_messages_with_other_tools_are_another_prompt() -> None:
    tools = [{"type": "function", "function": {"name": "lookup"}}]
    refuse_overlap([row(USER)], [row(USER, tools=tools)], "train.jsonl", "valid.jsonl")


def test_twenty_overlapping_pairs_are_listed_and_the_rest_counted(write: Write) -> None:
    rows = load_rows(write(*[{"prompt": str(number)} for number in range(30)]))
    with pytest.raises(DataError) as caught:
        refuse_overlap(rows, rows, "train.jsonl", "valid.jsonl")
    lines = caught.value.message.splitlines()
    assert lines[0].startswith("30 validation rows are also in the training data")
    assert len(lines) == 22
    assert lines[-1] == "and 10 more"


# For any input.

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
words = st.text(min_size=1, max_size=8).filter(str.strip)
turns = st.fixed_dictionaries({"role": st.sampled_from(["system", "user"]), "content": words})
odd_turns = st.dictionaries(
    st.sampled_from(["role", "content", "tool_calls", "tool_call_id", "name"]),
    json_values | st.sampled_from(["system", "user", "assistant", "tool", [CALL], "call_1"]),
)


@given(messages=st.lists(turns, min_size=1, max_size=4), extra=st.dictionaries(words, json_values, max_size=3))
def test_any_plain_conversation_is_kept_as_it_is(messages: list[dict[str, str]], extra: dict[str, Any]) -> None:
    reserved = {"messages", "tools", "metadata"}
    fields = {key: value for key, value in extra.items() if key not in reserved} | {"messages": messages}
    built = build_row(1, fields)
    assert isinstance(built, Row)
    assert [{"role": turn.role, "content": turn.content} for turn in built.messages] == messages
    assert built.fields == fields


@given(
    messages=json_values | st.lists(odd_turns | st.sampled_from([USER, ANSWER, CALLS, RESULT]), max_size=4),
    rest=st.fixed_dictionaries({}, optional={"tools": json_values, "metadata": json_values, "prompt": json_values}),
)
def test_any_object_is_a_row_or_faults(messages: Any, rest: dict[str, Any]) -> None:
    built = build_row(1, {"messages": messages, **rest})
    if isinstance(built, Row):
        assert built.messages and built.messages[-1].role != "assistant"
    else:
        assert built and all(fault.line == 1 and fault.problem and fault.remedy for fault in built)


# Real files.


@pytest.mark.parametrize(
    ("name", "count", "answered"),
    [
        ("azure_rft/clause_matching/clause_matching_validation.lines18-24.jsonl", 7, 0),
        ("azure_rft/countdown/countdown_train_100.jsonl", 100, 0),
        ("azure_rft/countdown/countdown_train_25.jsonl", 25, 0),
        ("azure_rft/countdown/countdown_valid_15.jsonl", 15, 0),
        ("azure_rft/countdown/countdown_valid_50.jsonl", 50, 0),
        ("azure_rft/medmcq/medmcq_validation.first1000.jsonl", 1000, 0),
        ("azure_rft/tool_calling/stock_toolcall_training.jsonl", 86, 86),
        ("azure_rft/tool_calling/stock_toolcall_validation.jsonl", 10, 10),
        ("areal/sample_math.jsonl", 10, 0),
        ("oumi/dataset_examples/oumi_format.jsonl", 2, 2),
        ("eval_protocol/simulated_deepcoder_transformed_sample.jsonl", 3, 0),
        ("tinker_cookbook/conversations.jsonl", 128, 128),
    ],
)
def test_public_rows_load(shared_data: Path, name: str, count: int, answered: int) -> None:
    rows = load_rows(shared_data / name)
    assert len(rows) == count
    assert sum(built.reference is not None for built in rows) == answered
    assert len({built.id for built in rows}) == count
    assert all(built.messages[-1].role != "assistant" for built in rows)


def test_final_tool_calls_of_public_rows_become_references(shared_data: Path) -> None:
    rows = load_rows(shared_data / "azure_rft/tool_calling/stock_toolcall_training.jsonl")
    assert sum(isinstance(built.reference, dict) for built in rows) == 36
    assert all(len(built.tools) == 2 for built in rows)


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("azure_rft/countdown/countdown_eval_100.jsonl", 100),
        ("azure_rft/countdown/countdown_train_raw.jsonl", 245),
        ("azure_rft/qa/qa.jsonl", 500),
        ("nemo_gym/workplace_assistant_example.jsonl", 5),
        ("gsm8k/test.jsonl", 1319),
    ],
)
def test_public_rows_of_other_shapes_are_refused_line_by_line(shared_data: Path, name: str, count: int) -> None:
    report = check_rows(shared_data / name)
    assert report.rows == ()
    assert report.fault_kinds == {"messages": count}


def test_public_rows_with_broken_arguments_are_refused(shared_data: Path) -> None:
    report = check_rows(shared_data / "eval_protocol/function_calling.jsonl")
    assert [(fault.line, fault.kind) for fault in report.faults] == [(11, "tool calls"), (12, "tool calls")]
    assert len(report.rows) == 11


def test_a_public_validation_split_that_repeats_training_rows_is_refused(shared_data: Path) -> None:
    folder = shared_data / "azure_rft" / "countdown"
    train = load_rows(folder / "countdown_train_100.jsonl")
    head = load_rows(folder / "countdown_train_25.jsonl")
    with pytest.raises(DataError, match="25 validation rows are also in the training data"):
        refuse_overlap(train, head, "train.jsonl", "head.jsonl")
