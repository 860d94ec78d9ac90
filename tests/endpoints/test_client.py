"""What an endpoint of others lists, and what it says when it refuses."""

from __future__ import annotations

import asyncio
import socket

import pytest

from chat_endpoint import ChatEndpoint, Reply, fails, lists
from strop.endpoints.client import model_names
from strop.endpoints.server import Server
from strop.errors import ConfigError, Unavailable


def names(url: str, key: str | None = None) -> list[str]:
    return asyncio.run(model_names(Server(url, key)))


def test_the_models_of_an_endpoint_are_asked_with_its_key() -> None:
    with ChatEndpoint(lambda _: lists("b", "a")) as endpoint:
        assert names(endpoint.url, "rosebud") == ["a", "b"]
    assert [(asked.path, asked.key) for asked in endpoint.asked] == [("/v1/models", "Bearer rosebud")]


def test_a_refused_key_is_named_and_never_repeated() -> None:
    with (
        ChatEndpoint(lambda _: fails(401, "rosebud is no key")) as endpoint,
        pytest.raises(ConfigError, match=r"401: the server refuses the key: \[redacted\] is no key"),
    ):
        names(endpoint.url, "rosebud")


@pytest.mark.parametrize(
    "reply", [fails(404), Reply(body=b"<html>", headers={"content-type": "text/html"}), Reply(body={"data": 3})]
)
def test_what_is_no_such_endpoint_is_told_by_its_address(reply: Reply) -> None:
    with ChatEndpoint(lambda _: reply) as endpoint, pytest.raises(ConfigError, match="check base_url"):
        names(endpoint.url)


@pytest.mark.parametrize("status", [429, 500, 503])
def test_an_endpoint_in_trouble_may_be_asked_again(status: int) -> None:
    with ChatEndpoint(lambda _: fails(status, "later")) as endpoint, pytest.raises(Unavailable, match="later"):
        names(endpoint.url)


def test_where_nothing_answers_it_is_said_where() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        with pytest.raises(Unavailable, match=r"127\.0\.0\.1"):
            names(url)
