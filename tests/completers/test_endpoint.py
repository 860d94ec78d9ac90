"""Conversations completed over HTTP by a model that is somewhere else."""

from __future__ import annotations

import asyncio
import dataclasses
import socket
import threading
import time
from collections.abc import Callable

import pytest

from chat_endpoint import Asked, ChatEndpoint, Reply, fails, says
from strop.completers.endpoint import EndpointCompleter
from strop.endpoints.chat import ChatEndpoint as Endpoint
from strop.endpoints.chat import Retries
from strop.endpoints.server import Server
from strop.envs.single_turn import SingleTurn
from strop.errors import ConfigError, Unavailable
from strop.rollout import Player, run_episodes
from strop.types import Group, Message, Row, SamplingParams, StopReason

TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
ROW = Row("row-1", 1, (Message("system", "Be brief."), Message("user", "2 + 2?")), (), "4", {})
PARAMS = SamplingParams(temperature=0.7, max_tokens=32, seed=3)


def play(
    url: str, count: int = 1, params: SamplingParams = PARAMS, row: Row = ROW, key: str | None = None, retries: int = 2
) -> Group:
    return plays(url, [row], count, params, key, retries)[0]


def plays(
    url: str,
    rows: list[Row],
    count: int = 1,
    params: SamplingParams = PARAMS,
    key: str | None = None,
    retries: int = 0,
    concurrency: int = 16,
) -> list[Group]:
    async def run() -> list[Group]:
        server = Server(url, key, "MODEL_KEY" if key else None)
        async with Endpoint(server, "m", Retries(seconds=20, tries=retries + 1)) as endpoint:
            player = Player(EndpointCompleter(endpoint, concurrency), SingleTurn())
            played = await asyncio.gather(*(run_episodes(row, count, params, player) for row in rows))
            return [Group(row, tuple(rollouts)) for row, rollouts in zip(rows, played, strict=True)]

    return asyncio.run(run())


def scripted(*replies: Reply) -> Callable[[Asked], Reply]:
    """These replies in their order, the last one again and again."""
    left = list(replies)
    return lambda asked: left.pop(0) if len(left) > 1 else left[0]


def answering(asked: Asked) -> Reply:
    """As many answers as asked for."""
    return says(*["4"] * asked.body.get("n", 1))


def test_a_row_is_asked_as_a_chat_completion() -> None:
    with ChatEndpoint(answering) as endpoint:
        play(endpoint.url, params=dataclasses.replace(PARAMS, top_p=0.9, stop=("END",)), key="sk-secret")
    (asked,) = endpoint.asked
    assert (asked.path, asked.key) == ("/v1/chat/completions", "Bearer sk-secret")
    assert asked.body.pop("seed") >= 0
    assert asked.body == {
        "model": "m",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2 + 2?"}],
        "temperature": 0.7,
        "max_completion_tokens": 32,
        "top_p": 0.9,
        "stop": ["END"],
    }


def test_an_answer_is_a_rollout_without_ids_and_with_the_length_that_the_server_counted() -> None:
    with ChatEndpoint(scripted(says("It is 4.", tokens=5))) as endpoint:
        (rollout,) = play(endpoint.url).rollouts
    assert rollout.messages == (Message("assistant", "It is 4."),)
    assert (rollout.segments, rollout.entropy, rollout.length) == ((), None, 5)
    assert (rollout.stop_reason, rollout.failure) == (StopReason.STOP, None)
    assert rollout.timing["sample"] > 0


def test_an_answer_at_the_limit_is_marked_as_cut_off() -> None:
    with ChatEndpoint(scripted(says("It is", finish="length"))) as endpoint:
        assert play(endpoint.url).rollouts[0].stop_reason is StopReason.LENGTH


def test_several_answers_come_in_one_call() -> None:
    with ChatEndpoint(scripted(says("four", "4", "2+2=4", tokens=14))) as endpoint:
        group = play(endpoint.url, count=3)
    assert [asked.body["n"] for asked in endpoint.asked] == [3]
    assert [rollout.messages[0].content for rollout in group.rollouts] == ["four", "4", "2+2=4"]
    assert [rollout.index for rollout in group.rollouts] == [0, 1, 2]
    assert sum(rollout.length for rollout in group.rollouts) == 14


def test_a_server_that_refuses_n_is_asked_one_by_one_with_seeds_of_their_own_from_then_on() -> None:
    with ChatEndpoint(lambda asked: fails(400, "n must be 1") if "n" in asked.body else says("4")) as endpoint:
        first, _ = plays(endpoint.url, [ROW, dataclasses.replace(ROW, id="row-2")], count=3, concurrency=1)
    assert [rollout.failure for rollout in first.rollouts] == [None] * 3
    assert len({asked.body["seed"] for asked in endpoint.asked[-3:]}) == 3
    assert sum("n" in asked.body for asked in endpoint.asked) <= 2


def test_a_server_that_ignores_n_is_asked_for_the_rest() -> None:
    with ChatEndpoint(scripted(says("4"))) as endpoint:
        group = play(endpoint.url, count=3)
    assert [rollout.messages[0].content for rollout in group.rollouts] == ["4"] * 3
    assert len(endpoint.asked) == 3


def test_a_row_that_is_refused_fails_alone_and_n_stays() -> None:
    def answer(asked: Asked) -> Reply:
        too_long = len(asked.body["messages"][-1]["content"]) > 100
        return fails(400, "maximum context length is 100") if too_long else answering(asked)

    long = dataclasses.replace(ROW, id="long", messages=(Message("user", "x" * 200),))
    with ChatEndpoint(answer) as endpoint:
        groups = plays(endpoint.url, [long, ROW], count=2, concurrency=1)
    assert groups[0].failure is not None
    assert groups[0].failure.cause == "refused"
    assert "maximum context length" in groups[0].failure.message
    assert groups[1].failure is None


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("max_completion_tokens", "Unrecognized request argument supplied: max_completion_tokens"),
        ("seed", "property 'seed' is unsupported"),
    ],
)
def test_a_parameter_that_a_server_does_not_know_is_left_out(named: str, message: str) -> None:
    with ChatEndpoint(lambda asked: fails(400, message) if named in asked.body else answering(asked)) as endpoint:
        groups = plays(endpoint.url, [ROW, dataclasses.replace(ROW, id="row-2")])
    assert [group.failure for group in groups] == [None, None]
    assert named not in endpoint.asked[-1].body
    assert ("max_tokens" in endpoint.asked[-1].body) == (named == "max_completion_tokens")


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503])
def test_what_may_pass_is_tried_again(status: int) -> None:
    with ChatEndpoint(scripted(fails(status), fails(status), says("4"))) as endpoint:
        assert play(endpoint.url).failure is None
    assert len(endpoint.asked) == 3


def test_the_wait_that_a_limit_asks_for_is_kept() -> None:
    with ChatEndpoint(scripted(Reply(429, {}, {"retry-after": "0.3"}), says("4"))) as endpoint:
        assert play(endpoint.url).rollouts[0].timing["sample"] >= 0.3


@pytest.mark.parametrize(
    ("reply", "cause"),
    [
        (fails(429, "slow down"), "rate_limit"),
        (fails(500, "on fire"), "server"),
        (fails(418, "teapot"), "refused"),
        (Reply(200, b"<html>welcome</html>", {"content-type": "text/html"}), "response"),
        (Reply(200, b'{"choices": [{"mess', {}), "response"),
        (Reply(200, b"", {}), "response"),
        (Reply(200, {"choices": []}), "response"),
        (Reply(200, {"choices": [{"index": 0}]}), "response"),
        (Reply(200, [1, 2]), "response"),
        (says("…", finish="content_filter"), "content_filter"),
    ],
)
def test_what_the_endpoint_does_wrong_is_a_failure_and_no_score(reply: Reply, cause: str) -> None:
    with ChatEndpoint(scripted(reply)) as endpoint:
        (rollout,) = play(endpoint.url, retries=1).rollouts
    assert rollout.failure is not None
    assert rollout.failure.cause == cause
    assert "\n" not in rollout.failure.message
    assert rollout.reward is None


def test_a_server_that_is_not_there_is_a_failure_that_says_why() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    (rollout,) = play(f"http://127.0.0.1:{port}/v1", retries=0).rollouts
    assert rollout.failure is not None
    assert rollout.failure.cause == "connection"
    assert "All connection attempts failed" in rollout.failure.message


@pytest.mark.parametrize(
    ("status", "hint"), [(401, "api_key_env"), (403, "api_key_env"), (404, "the model's name, 'm'"), (302, "base_url")]
)
def test_what_no_row_can_mend_ends_the_evaluation_and_names_the_setting(status: int, hint: str) -> None:
    reply = fails(status, "go away", location="http://169.254.169.254/latest/")
    with ChatEndpoint(scripted(reply)) as endpoint, pytest.raises(ConfigError, match=hint) as caught:
        play(endpoint.url)
    assert str(status) in caught.value.message
    assert endpoint.url in caught.value.message
    assert len(endpoint.asked) == 1


def test_a_key_that_a_server_repeats_is_redacted() -> None:
    with (
        ChatEndpoint(scripted(fails(401, "wrong key: sk-secret-123"))) as endpoint,
        pytest.raises(ConfigError) as error,
    ):
        play(endpoint.url, key="sk-secret-123")
    assert "sk-secret-123" not in error.value.message
    assert "[redacted MODEL_KEY]" in error.value.message


def test_keys_of_the_environment_are_sent_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY"):
        monkeypatch.setenv(name, "sk-own")
    with ChatEndpoint(answering) as endpoint:
        play(endpoint.url)
    assert endpoint.asked[0].key == "Bearer none"


def test_an_endpoint_that_is_down_ends_the_evaluation_after_some_rows() -> None:
    rows = [dataclasses.replace(ROW, id=f"row-{number}") for number in range(50)]
    with ChatEndpoint(scripted(fails(503, "over capacity"))) as endpoint, pytest.raises(Unavailable, match="capacity"):
        plays(endpoint.url, rows, concurrency=2)
    assert len(endpoint.asked) < 30


def test_single_failures_end_nothing() -> None:
    rows = [dataclasses.replace(ROW, id=f"row-{number}") for number in range(50)]
    replies = [fails(500) if number % 3 else says("4") for number in range(50)]
    with ChatEndpoint(scripted(*replies)) as endpoint:
        groups = plays(endpoint.url, rows, concurrency=1)
    assert sum(group.failure is None for group in groups) == 17


def test_no_more_calls_are_under_way_than_allowed() -> None:
    lock = threading.Lock()
    under_way = most = 0

    def answer(asked: Asked) -> Reply:
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        time.sleep(0.01)
        with lock:
            under_way -= 1
        return says("4")

    with ChatEndpoint(answer) as endpoint:
        plays(endpoint.url, [dataclasses.replace(ROW, id=f"row-{number}") for number in range(12)], concurrency=3)
    assert 1 < most <= 3


def test_tools_are_offered_and_calls_are_kept() -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a": 2}'}}
    row = dataclasses.replace(ROW, tools=(TOOL,))
    with ChatEndpoint(scripted(says(None, tool_calls=[call]))) as endpoint:
        (rollout,) = play(endpoint.url, row=row).rollouts
    assert endpoint.asked[0].body["tools"] == [TOOL]
    assert rollout.messages[0].as_dict() == {"role": "assistant", "content": "", "tool_calls": [call]}


def test_a_refusal_is_an_answer() -> None:
    with ChatEndpoint(scripted(says(None, refusal="I cannot.", tokens=3))) as endpoint:
        assert play(endpoint.url).rollouts[0].messages[0].content == "I cannot."


def test_half_a_character_can_be_written_to_a_file() -> None:
    with ChatEndpoint(scripted(says("one \ud83d two"))) as endpoint:
        assert play(endpoint.url).rollouts[0].messages[0].content == "one ? two"


def test_stop_strings_beyond_the_four_that_servers_take_cut_the_text_here() -> None:
    params = dataclasses.replace(PARAMS, stop=("A", "B", "C", "D", "E"))
    with ChatEndpoint(scripted(says("yes E no"))) as endpoint:
        (rollout,) = play(endpoint.url, params=params).rollouts
    assert endpoint.asked[0].body["stop"] == ["A", "B", "C", "D"]
    assert rollout.messages[0].content == "yes "


def test_the_same_seed_asks_the_same() -> None:
    with ChatEndpoint(scripted(says("4"))) as endpoint:
        play(endpoint.url, count=2)
        play(endpoint.url, count=2)
    assert [asked.body for asked in endpoint.asked[:2]] == [asked.body for asked in endpoint.asked[2:]]
