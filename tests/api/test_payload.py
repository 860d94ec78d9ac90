"""Bodies: JSON as it is defined, and nothing that Python alone understands."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient
from hypothesis import given, settings
from hypothesis import strategies as st

from served import services
from strop.api.app import create_app
from strop.api.payload import json_fault

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    with services(tmp_path_factory.mktemp("data")) as server:
        yield TestClient(create_app(server), base_url="http://localhost:8100")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (b'{"name": NaN}', "invalid character"),
        (b'{"name": -Infinity}', "invalid character"),
        (b'{"name": 1e999}', "out of range"),
        (rb'{"name": "\ud800"}', "the body is not valid JSON"),
        (b'{"name": "\xff"}', "Invalid UTF-8"),
        (b"\xef\xbb\xbf{}", "invalid character"),
        ('{"name": "a"}'.encode("utf-16"), "invalid character"),
        (b'{"name": "a"', "truncated"),
        (b'{"name": "a"} x', "trailing characters"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a":' * 100_000, "nested too deeply"),
    ],
)
def test_what_is_no_json_is_refused_before_a_route_sees_it(client: TestClient, text: bytes, fault: str) -> None:
    answer = client.post("/v1/strop/keys", content=text, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_json")
    assert fault in answer.json()["error"]["message"]


@pytest.mark.parametrize("text", [b"", b" \n", b"{}", rb'"\ud83d\ude00"', b"12345678901234567890123", b'{"a":1,"a":2}'])
def test_what_is_json_passes(text: bytes) -> None:
    assert json_fault(text) is None


def test_a_body_with_charset_and_of_many_pieces_arrives_whole(client: TestClient) -> None:
    pieces = iter([b'{"na', b"", b'me": "lap', "töp".encode(), b'"}'])
    kind = {"content-type": "Application/JSON; charset=utf-8"}
    assert client.post("/v1/strop/keys", content=pieces, headers=kind).json()["name"] == "laptöp"


def test_an_empty_body_that_is_called_json_is_none(client: TestClient) -> None:
    headers = {"content-type": "application/json", "transfer-encoding": "chunked"}
    assert client.delete("/v1/strop/keys/key_0", headers=headers).status_code == 404


@given(VALUES)
@settings(max_examples=100, deadline=None)
def test_every_json_document_passes(value: object) -> None:
    try:
        text = json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return
    assert json_fault(text) is None


@given(st.binary())
@settings(max_examples=100, deadline=None)
def test_what_passes_can_be_read_and_written(text: bytes) -> None:
    if text.strip() and json_fault(text) is None:
        json.dumps(json.loads(text), ensure_ascii=False, allow_nan=False).encode()
