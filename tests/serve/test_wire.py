"""Frames: what goes in comes out, and what is none is refused."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strop import errors
from strop.errors import InvalidRequest, ModelError, NotFound, ServerError, StropError, Unavailable
from strop.policy.draw import NotFinite
from strop.serve.wire import (
    MAX_FRAME,
    Alternative,
    Answer,
    Call,
    Cancel,
    ChatRequest,
    Delta,
    Done,
    EngineState,
    Fault,
    Finished,
    Frame,
    GetState,
    Load,
    ModelState,
    Ok,
    Token,
    Unload,
    reachable,
    read_frame,
)

REQUEST = ChatRequest(
    id="chatcmpl-1",
    model="m",
    messages=({"role": "user", "content": [{"type": "text", "text": "é😀\u2028\0"}]},),
    tools=({"type": "function", "function": {"name": "f", "parameters": {"x": 1.5}}},),
    template={"enable_thinking": False},
    n=2,
    stop=("a", "b"),
    seed=2**62,
)
MODEL = ModelState("m", "/folder", None, 2**40, 0, 1, 2, 8192)
BODIES: list[Call | Answer] = [
    REQUEST,
    ChatRequest("1", "m", ()),
    Load("m", "/folder"),
    Unload("m"),
    GetState(),
    Cancel(),
    Ok(),
    Delta(1, "text", (Token("\ufffd", 7, -0.25, (240, 159), (Alternative("x", 9, -9999.0, (120,)),)),)),
    Finished(0, "length", 12),
    Done(3, 12),
    MODEL,
    EngineState((MODEL,), 2**40, 2**41, "cpu"),
    Fault("NotFound", "no model", "model", 3.5),
]


def decoded(frame: Frame) -> Frame:
    return Frame.decode(frame.encode()[4:])


@pytest.mark.parametrize("body", BODIES, ids=lambda body: type(body).__name__)
def test_every_body_comes_out_as_it_went_in(body: Call | Answer) -> None:
    assert decoded(Frame(2**31, body)) == Frame(2**31, body)


@given(
    st.recursive(st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(), lambda inner: st.lists(inner))
)
def test_messages_may_hold_any_json(content: object) -> None:
    request = ChatRequest("1", "m", ({"role": "user", "content": content},))
    try:
        assert decoded(Frame(1, request)).body == request
    except InvalidRequest:
        assert "\\ud" in json.dumps(content)  # halves of characters have no bytes


def test_half_a_character_is_refused_as_the_clients_fault() -> None:
    with pytest.raises(InvalidRequest, match="cannot be sent"):
        Frame(1, ChatRequest("1", "m", ({"content": "\ud800"},))).encode()


def test_a_frame_over_the_limit_is_refused_before_it_is_sent() -> None:
    with pytest.raises(InvalidRequest, match="65 MiB, 64 are allowed"):
        Frame(1, ChatRequest("1", "m", ({"content": "x" * (MAX_FRAME + 2**20)},))).encode()


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"{}",
        b"[1]",
        b'[1,"Nothing",{}]',
        b'[1,"Delta",{}]',
        b'[1,"Delta",[]]',
        b'[1,"Finished",{"index":0,"finish_reason":"bored","completion_tokens":1}]',
        b"\x80\x04.",
        b"[" * 100_000,
    ],
)
def test_what_is_no_frame_is_refused(payload: bytes) -> None:
    with pytest.raises(ServerError, match="cannot be read"):
        Frame.decode(payload)


async def read(content: bytes) -> Frame | None:
    reader = asyncio.StreamReader()
    reader.feed_data(content)
    reader.feed_eof()
    return await read_frame(reader)


def test_a_frame_that_is_cut_off_counts_as_the_end() -> None:
    whole = Frame(1, Ok()).encode()
    assert asyncio.run(read(whole)) == Frame(1, Ok())
    for length in range(len(whole)):
        assert asyncio.run(read(whole[:length])) is None


def test_a_length_over_the_limit_is_not_waited_for() -> None:
    with pytest.raises(ServerError, match="bytes"):
        asyncio.run(read(struct.pack(">I", MAX_FRAME + 1)))


KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, StropError)]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_error_is_the_same_on_the_other_side(kind: type[StropError]) -> None:
    sent = kind("why", param="model")
    if isinstance(sent, errors.TryLater):
        sent.retry_after = 7.5
    found = Fault.of(sent).error()
    assert type(found) is kind
    assert vars(found) == vars(sent)


def test_an_error_that_is_not_strops_own_comes_as_one_of_the_model() -> None:
    assert Fault.of(KeyError("x")) == Fault("ModelError", "KeyError: 'x'")
    assert Fault.of(NotFinite([0])).kind == "ModelError"
    assert type(Fault("StringIO", "from a newer version").error()) is ModelError
    assert isinstance(Fault.of(Unavailable("full", retry_after=5)).error(), Unavailable)
    assert Fault.of(NotFound("no", param="model")).param == "model"


def test_a_socket_in_a_folder_with_a_long_path_is_reached(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 40)
    folder.mkdir()
    with socket.socket(socket.AF_UNIX) as listener, reachable(folder / "engine.sock") as path:
        listener.bind(path)
        listener.listen()
        with socket.socket(socket.AF_UNIX) as client, reachable(folder / "engine.sock") as other:
            client.connect(other)
    assert (folder / "engine.sock").is_socket()
