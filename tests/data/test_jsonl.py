"""Strict JSON Lines: what is read, what is refused, and in what words."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strop.data.faults import Fault
from strop.data.jsonl import MAX_LINE_BYTES, read_objects
from strop.data.strict_json import MAX_DEPTH

Read = Callable[..., list[tuple[int, Any]]]


@pytest.fixture(scope="session")
def read(tmp_path_factory: pytest.TempPathFactory) -> Read:
    """Reads the given bytes as a file."""
    path = tmp_path_factory.mktemp("jsonl") / "data.jsonl"

    def read_bytes(content: bytes, **options: int) -> list[tuple[int, Any]]:
        path.write_bytes(content)
        return list(read_objects(path, **options))

    return read_bytes


def only_fault(found: list[tuple[int, Any]]) -> Fault:
    faults = [item for _, item in found if isinstance(item, Fault)]
    assert len(faults) == 1, found
    assert faults[0].problem and faults[0].remedy
    return faults[0]


def nested(depth: int) -> bytes:
    return b'{"a":' * depth + b"1" + b"}" * depth + b"\n"


# What is read.


@pytest.mark.parametrize(
    "content",
    [
        b'{"a": 1}\n{"a": 2}\n',
        b'{"a": 1}\n{"a": 2}',
        b'\xef\xbb\xbf{"a": 1}\n{"a": 2}\n',
        b'{"a": 1}\r\n{"a": 2}\r\n',
        b'{"a": 1}\r\n{"a": 2}\r',
        b' {"a": 1} \n\t{"a":\t2}\n',
    ],
    ids=["plain", "no final newline", "byte order mark", "CRLF", "final CR", "spaces"],
)
def test_harmless_variations_are_read(read: Read, content: bytes) -> None:
    assert read(content) == [(1, {"a": 1}), (2, {"a": 2})]


def test_blank_lines_are_skipped_and_counted(read: Read) -> None:
    assert read(b'\n  \n{"a": 1}\r\n\r\n\t\n{"a": 2}\n\n') == [(3, {"a": 1}), (6, {"a": 2})]


@pytest.mark.parametrize("char", ["\u2028", "\u2029", "\u0085", "\x7f", "\ufeff", "\U0001f600"])
def test_characters_that_others_split_at_are_text(read: Read, char: str) -> None:
    assert read(f'{{"a": "x{char}y"}}\n'.encode()) == [(1, {"a": f"x{char}y"})]


def test_integers_stay_exact(read: Read) -> None:
    assert read(b'{"a": %d, "b": -%d}\n' % (2**70, 10**4299)) == [(1, {"a": 2**70, "b": -(10**4299)})]


def test_escaped_nul_and_surrogate_pairs_are_text(read: Read) -> None:
    assert read(rb'{"a": "\u0000", "b": "\ud83d\ude00", "c": "\\ud800"}') == [
        (1, {"a": "\0", "b": "\U0001f600", "c": r"\ud800"})
    ]


def test_a_key_named_proto_is_a_key(read: Read) -> None:
    assert read(b'{"__proto__": {"x": 1}}\n') == [(1, {"__proto__": {"x": 1}})]


def test_nesting_up_to_the_limit_is_read(read: Read) -> None:
    assert isinstance(read(nested(MAX_DEPTH))[0][1], dict)


def test_brackets_inside_strings_do_not_count_as_nesting(read: Read) -> None:
    assert read(json.dumps({"a": '[{"\\' * 1000}).encode()) == [(1, {"a": '[{"\\' * 1000})]


def test_many_shallow_brackets_are_no_nesting(read: Read) -> None:
    assert read(json.dumps({"a": [[]] * 500}).encode()) == [(1, {"a": [[]] * 500})]


def test_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "real.jsonl").write_text('{"a": 1}\n')
    (tmp_path / "link.jsonl").symlink_to("real.jsonl")
    assert list(read_objects(tmp_path / "link.jsonl")) == [(1, {"a": 1})]


# What is refused, line by line.


@pytest.mark.parametrize(
    ("line", "kind", "words"),
    [
        (b'{"a": "\xe9"}', "encoding", "byte 0xe9 at byte 8"),
        (b'{"a": "\xed\xa0\x80"}', "encoding", "byte 0xed"),
        (b'\xef\xbb\xbf{"a": 1}', "encoding", "byte order mark inside"),
        (b'{"a": "\x00"}', "nul", "raw NUL at byte 8"),
        (b'{"a": "x\ty"}', "syntax", r"control character '\t' at column 9"),
        (rb'{"a": "\ud800"}', "surrogate", r"\ud800 in a"),
        (rb'{"m": [{"c": "x\udFFFy"}]}', "surrogate", r"\udfff in m[0].c"),
        (rb'{"\uDC00": 1}', "surrogate", r"\udc00 in a key"),
        (b'{"a": 1, "b": 2, "a": 3}', "duplicate key", "'a' occurs twice"),
        (b'{"a": {"b": 2, "\\u0062": 3}}', "duplicate key", "'b' occurs twice"),
        (b'{"a": NaN}', "number", "NaN"),
        (b'{"a": [Infinity]}', "number", "Infinity"),
        (b'{"a": -Infinity}', "number", "-Infinity"),
        (b'{"a": 1e999}', "number", "1e999 is too large"),
        (b'{"a": -1e999}', "number", "-1e999 is too large"),
        (b'{"a": ' + b"9" * 5000 + b"}", "number", "5,000 digits"),
        (nested(MAX_DEPTH + 1)[:-1], "nesting", "more than 64 levels"),
        (b"[" * 100_000, "nesting", "more than 64 levels"),
        (b'[{"a": 1}]', "not an object", "a list"),
        (b"3", "not an object", "the number 3"),
        (b"null", "not an object", "null"),
        (b'"abc"', "not an object", "the string 'abc'"),
        (b'{"a": 1}{"a": 2}', "syntax", "a second value at column 9"),
        (b'{"a": 1} {"a": 2}', "syntax", "a second value at column 10"),
        (b'{"a": 1},', "syntax", "a comma at column 9, after the object"),
        (b'{"a": 1,}', "syntax", "a trailing comma before '}'"),
        (b'{"a": [1, ]}', "syntax", "a trailing comma before ']'"),
        (b'{"a": 1', "syntax", "ends too early"),
        (b'{"a": "x', "syntax", "ends inside the value that starts at column 7"),
        (b"{'a': 1}", "syntax", "column 2"),
        (b'{"a": 1}\r{"a": 2}', "line ends", "carriage returns alone"),
    ],
)
def test_a_faulty_line_is_named_and_the_others_are_read(read: Read, line: bytes, kind: str, words: str) -> None:
    found = read(b'{"n": 1}\n\n' + line + b'\n{"n": 2}\n')
    fault = only_fault(found)
    assert (fault.line, fault.kind) == (3, kind)
    assert words in fault.problem
    assert [item for _, item in found if item is not fault] == [{"n": 1}, {"n": 2}]


def test_a_message_quotes_only_the_start_of_what_was_found(read: Read) -> None:
    key = b"k" * 10_000
    assert len(str(only_fault(read(b'{"%b": 1, "%b": 2}' % (key, key))))) < 200


def test_every_fault_of_a_file_is_found(read: Read) -> None:
    found = read(b'{"a": NaN}\n[]\n{"a": 1}\n{"b": 1, "b": 2}\n')
    assert [(line, isinstance(item, Fault)) for line, item in found] == [(1, True), (2, True), (3, False), (4, True)]


@pytest.mark.parametrize(
    "tail", [b'{"a": "some te', b'{"a": [1, 2', b'{"a": tru', b'{"a": "\xe2\x82', b'{"a": "\\u12', b"{"]
)
def test_a_truncated_tail_looks_cut_off(read: Read, tail: bytes) -> None:
    found = read(b'{"a": 1}\n' + tail)
    assert found[0] == (1, {"a": 1})
    fault = only_fault(found)
    assert (fault.line, fault.kind) == (2, "cut off")
    assert "looks cut off" in fault.problem


def test_a_complete_last_line_with_another_fault_is_not_called_cut_off(read: Read) -> None:
    assert only_fault(read(b"{'a': 1}")).kind == "syntax"
    assert only_fault(read(b'{"a": "\xe9"}')).kind == "encoding"


# Size.


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf"])
def test_the_size_limit_is_exact_and_counts_neither_mark_nor_line_end(read: Read, start: bytes, end: bytes) -> None:
    line = b'{"a": "xyz"}'
    assert read(start + line + end, max_line_bytes=len(line)) == [(1, {"a": "xyz"})]
    assert only_fault(read(start + line + end, max_line_bytes=len(line) - 1)).kind == "too long"


def test_an_over_long_line_is_skipped(read: Read) -> None:
    found = read(b'{"a": 1}\n{"a": "' + b"x" * 200_000 + b'"}\n{"a": 2}\n', max_line_bytes=100)
    assert [item for _, item in found if isinstance(item, dict)] == [{"a": 1}, {"a": 2}]
    fault = only_fault(found)
    assert fault.line == 2
    assert "200,009 bytes" in fault.problem and "100" in fault.problem


def test_a_huge_line_is_not_held_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "huge.jsonl"
    with path.open("wb") as file:
        for _ in range(64):
            file.write(b"x" * 2**20)
        file.write(b'\n{"a": 1}\n')
    tracemalloc.start()
    try:
        found = list(read_objects(path, max_line_bytes=1000))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found[1] == (2, {"a": 1})
    assert peak < 2**20


def test_the_default_limit_is_eight_mebibytes(read: Read) -> None:
    padding = b"x" * (MAX_LINE_BYTES - len(b'{"a": ""}'))
    assert isinstance(read(b'{"a": "' + padding + b'"}\n')[0][1], dict)
    assert only_fault(read(b'{"a": "' + padding + b'x"}\n')).kind == "too long"


def test_hostile_quotes_take_linear_time(read: Read) -> None:
    assert only_fault(read(b"[" * 65 + b'"' + rb"\"" * 500_000)).kind == "nesting"


# Faults of the whole file.


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"a": 1}\n{"a": 2}\n'.encode("utf-16"), "UTF-16"),
        ('{"a": 1}\n{"a": 2}\n'.encode("utf-16-le"), "UTF-16"),
        ('{"a": 1}\n{"a": 2}\n'.encode("utf-16-be"), "UTF-16"),
        ('{"a": 1}\n'.encode("utf-32"), "UTF-32"),
        ('{"a": 1}\n'.encode("utf-32-be"), "UTF-32"),
        (gzip.compress(b'{"a": 1}\n' * 100), "gzip"),
        (b"PAR1\n\x00\n\x01", "Parquet"),
        (b'{\n  "a": 1\n}\n', "spread over several lines"),
        (b'\n[\n{"a": 1},\n{"a": 2}\n]\n', "spread over several lines"),
        (b"", "no rows"),
        (b"\xef\xbb\xbf", "no rows"),
        (b"\n \r\n\n", "no rows"),
    ],
)
def test_a_fault_of_the_whole_file_is_reported_once(read: Read, content: bytes, words: str) -> None:
    found = read(content)
    assert len(found) == 1
    assert only_fault(found).line == 0
    assert words in only_fault(found).problem


@pytest.mark.parametrize("limit", [MAX_LINE_BYTES, 50])
def test_carriage_returns_as_line_ends_are_one_fault(read: Read, limit: int) -> None:
    fault = only_fault(read(b'{"a": 1}\r{"a": 2}\r' * 50, max_line_bytes=limit))
    assert "carriage returns alone" in fault.problem


def test_a_carriage_return_between_tokens_is_white_space(read: Read) -> None:
    assert read(b'{"a":\r1}\n') == [(1, {"a": 1})]


@pytest.mark.parametrize("name", ["missing.jsonl", "."])
def test_a_path_that_cannot_be_read_is_a_fault(tmp_path: Path, name: str) -> None:
    assert "cannot be read" in only_fault(list(read_objects(tmp_path / name))).problem


def test_a_file_that_grows_while_it_is_read_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "growing.jsonl"
    path.write_text('{"a": 1}\n{"a": 2}\n')
    found = read_objects(path)
    first = next(found)
    with path.open("a") as file:
        file.write('{"a": 3}\n')
    assert "changed while it was read" in only_fault([first, *found]).problem


# For any input.

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)
objects = st.dictionaries(st.text(max_size=6), json_values, max_size=4)


@given(values=st.lists(objects, min_size=1, max_size=4), ascii_only=st.booleans(), end=st.sampled_from(["\n", "\r\n"]))
def test_what_json_dumps_writes_is_read_back_equal(read: Read, values: list[Any], ascii_only: bool, end: str) -> None:
    text = end.join(json.dumps(value, ensure_ascii=ascii_only) for value in values)
    assert read(text.encode()) == list(enumerate(values, start=1))


fragments = st.sampled_from(
    [
        b"{",
        b"}",
        b"[",
        b"]",
        b'"',
        b"\\",
        b",",
        b":",
        b"\n",
        b"\r",
        b"\0",
        b'"a":1',
        b"{}",
        b"\\ud800",
        b"1e999",
        b"NaN",
    ]
)


@given(content=st.binary(max_size=200) | st.lists(fragments | st.binary(max_size=2), max_size=30).map(b"".join))
def test_any_bytes_give_objects_or_faults(read: Read, content: bytes) -> None:
    found = read(content, max_line_bytes=64)
    assert found, "a file without rows has at least a fault"
    for line, item in found:
        assert isinstance(item, dict | Fault)
        assert 0 <= line <= content.count(b"\n") + 1
        json.dumps(str(item) if isinstance(item, Fault) else item).encode()


@given(value=objects, position=st.floats(0, 1))
def test_a_file_cut_anywhere_in_its_last_row_is_refused(read: Read, value: dict[str, Any], position: float) -> None:
    row = json.dumps(value, ensure_ascii=False).encode()
    cut = 1 + int(position * (len(row) - 2))
    found = read(b'{"first": true}\n' + row[:cut])
    assert found[0] == (1, {"first": True})
    assert only_fault(found).kind == "cut off"
