"""One call to an endpoint: what is tried again, what is left out, and what a failure is called."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from chat_endpoint import Asked, Reply, fails, says
from chat_endpoint import ChatEndpoint as FakeEndpoint
from strop.endpoints.chat import ChatEndpoint, Retries
from strop.endpoints.problems import CallFailed, Problem
from strop.endpoints.replies import ChatReply
from strop.endpoints.server import Server
from strop.types import ToolCall

BODY = {"messages": [{"role": "user", "content": "2 + 2?"}]}


def complete(fake: FakeEndpoint, tries: int = 1, key: str | None = None, calls: int = 1, **body: Any) -> ChatReply:
    async def run() -> ChatReply:
        server = Server(fake.url, key, "MY_KEY" if key else None)
        async with ChatEndpoint(server, "m", Retries(20.0, tries)) as endpoint:
            for _ in range(calls - 1):
                await endpoint.complete(BODY | body)
            return await endpoint.complete(BODY | body)

    return asyncio.run(run())


def problem(answer: Callable[[Asked], Reply], **options: Any) -> tuple[Problem, int]:
    """What is wrong, and how many requests it took to know."""
    with FakeEndpoint(answer) as fake, pytest.raises(CallFailed) as caught:
        complete(fake, **options)
    return caught.value.problem, len(fake.asked)


@pytest.mark.parametrize(
    ("reply", "cause"),
    [
        (fails(429), "rate_limit"),
        (fails(503), "server"),
        (fails(408), "server"),
        (Reply(200, b"<html>hello</html>", {"content-type": "text/html"}), "response"),
        (Reply(200, {"choices": [{"index": 0}]}), "response"),
    ],
)
def test_what_may_pass_is_tried_as_often_as_allowed(reply: Reply, cause: str) -> None:
    found, requests = problem(lambda _: reply, tries=2)
    assert (found.cause, found.temporary, requests) == (cause, True, 2)
    assert found.message.startswith("m at http://127.0.0.1:")
    assert found.message.endswith(" (2 tries)")


@pytest.mark.parametrize(
    ("reply", "cause"),
    [
        (fails(401), "credentials"),
        (fails(404), "not_found"),
        (fails(302, location="http://169.254.169.254/"), "redirect"),
        (fails(418), "refused"),
        (fails(400, "maximum context length is 100"), "refused"),
    ],
)
def test_what_will_not_pass_is_asked_once(reply: Reply, cause: str) -> None:
    found, requests = problem(lambda _: reply, tries=5)
    assert (found.cause, found.temporary, requests) == (cause, False, 1)


def test_the_wait_that_a_server_asks_for_is_kept() -> None:
    replies = [Reply(429, {}, {"retry-after": "0.3"}), says("4")]
    with FakeEndpoint(lambda _: replies.pop(0)) as fake:
        started = time.monotonic()
        assert complete(fake, tries=2).choices[0].text == "4"
    assert time.monotonic() - started >= 0.3


def test_a_key_that_a_server_repeats_is_redacted() -> None:
    found, _ = problem(lambda _: fails(401, "sk-secret is wrong"), key="sk-secret")
    assert found.message.endswith("401: the server refuses the key in $MY_KEY: [redacted MY_KEY] is wrong")


@pytest.mark.parametrize(
    ("key", "value", "complaint"),
    [
        ("seed", 7, "property 'seed' is unsupported"),
        ("response_format", {"type": "json_schema"}, "json_schema is not available"),
        ("max_completion_tokens", 32, "Unrecognized request argument supplied: max_completion_tokens"),
    ],
)
def test_a_key_that_a_server_does_not_understand_is_left_out_from_then_on(key: str, value: Any, complaint: str) -> None:
    with FakeEndpoint(lambda asked: fails(400, complaint) if key in asked.body else says("4")) as fake:
        assert complete(fake, calls=2, **{key: value}).choices[0].text == "4"
    assert [key in asked.body for asked in fake.asked] == [True, False, False]
    assert [asked.body.get("max_tokens") for asked in fake.asked[1:]] == [value if key.startswith("max") else None] * 2


def test_a_refusal_that_names_a_key_which_was_not_sent_stays_a_refusal() -> None:
    found, requests = problem(lambda _: fails(400, "seed 7 is taken"))
    assert (found.cause, requests) == ("refused", 1)


def test_text_that_cannot_be_sent_is_no_fault_of_the_server() -> None:
    with FakeEndpoint(lambda _: says("4")) as fake, pytest.raises(CallFailed) as caught:
        complete(fake, messages=[{"role": "user", "content": float("nan")}])
    assert caught.value.problem.cause == "request"
    assert fake.asked == []


def test_tool_calls_refusals_and_token_counts_are_read() -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a": 2}'}}
    with FakeEndpoint(lambda _: says(None, tool_calls=[call], refusal="I cannot.", tokens=3)) as fake:
        reply = complete(fake)
    (choice,) = reply.choices
    assert (choice.text, choice.refusal) == ("", "I cannot.")
    assert choice.tool_calls == (ToolCall("call_1", "add", '{"a": 2}'),)
    assert reply.usage.completion_tokens == 3
