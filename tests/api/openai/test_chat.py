"""Chat completions through OpenAI's client, over a model that says what the test lets it say."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI

from served import connected, services
from strop.errors import NotFound, Unavailable
from strop.serve.answers import Answer
from strop.serve.bodies import ChatBody
from strop.serve.generate import Alternative, Delta, Done, Event, Finished, GenerateRequest, Started, Token
from strop.types import ToolCall

HI = [{"role": "user", "content": "Hi"}]


class FakeDeployments:
    """Answers `Hello` and `world`, in two pieces for each of `n`, or as `script` says."""

    def __init__(self, *script: Event | Exception | None) -> None:
        self.script = script
        """None waits until the request is cancelled."""
        self.asked: list[dict[str, Any]] = []
        self.cancelled = threading.Event()

    async def chat(self, body: dict[str, Any]) -> dict[str, Any]:
        request = ChatBody.model_validate(body).request()
        return await Answer(request).whole(self._events(body, request))

    async def chat_stream(self, body: dict[str, Any]) -> AsyncGenerator[dict[str, Any]]:
        request = ChatBody.model_validate(body).request()
        answer = Answer(request, usage=True, continuous=True)
        async with aclosing(self._events(body, request)) as events:
            async for event in events:
                for chunk in answer.chunks(event):
                    yield chunk

    async def _events(self, body: dict[str, Any], request: GenerateRequest) -> AsyncGenerator[Event]:
        self.asked.append(body)
        try:
            for event in self.script or tuple(_hello(request)):
                if isinstance(event, Exception):
                    raise event
                if event is None:
                    await asyncio.sleep(60)
                else:
                    yield event
        except (asyncio.CancelledError, GeneratorExit):
            self.cancelled.set()
            raise


def _hello(request: GenerateRequest) -> Iterator[Event]:
    yield Started(tuple(range(5)))
    for text in ("Hello ", "world"):
        token = Token(text, 7, -0.5, tuple(text.encode()), (Alternative(text, 7, -0.5, tuple(text.encode())),))
        for index in range(request.n):
            yield Delta(index, text, (token,) if request.logprobs else (), drawn=1)
    for index in range(request.n):
        yield Finished(index, "stop", 2)
    yield Done(5, 2 * request.n)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[OpenAI, FakeDeployments]]:
    model = FakeDeployments()
    with services(tmp_path_factory.mktemp("data"), deployments=model) as given, connected(given) as client:
        yield client, model


@pytest.fixture
def client(shared: tuple[OpenAI, FakeDeployments]) -> OpenAI:
    return shared[0]


@pytest.fixture
def model(shared: tuple[OpenAI, FakeDeployments]) -> FakeDeployments:
    shared[1].asked.clear()
    return shared[1]


def create(client: OpenAI, **fields: Any) -> Any:
    return client.chat.completions.create(**{"model": "tiny", "messages": HI, **fields})


def refused(client: OpenAI, **fields: Any) -> openai.BadRequestError:
    with pytest.raises(openai.BadRequestError) as caught:
        create(client, **fields)
    return caught.value


def test_an_answer_has_every_field_that_the_client_declares(client: OpenAI) -> None:
    answer = create(client)
    assert (answer.object, answer.model) == ("chat.completion", "tiny")
    (choice,) = answer.choices
    assert (choice.index, choice.finish_reason, choice.logprobs) == (0, "stop", None)
    assert (choice.message.role, choice.message.content) == ("assistant", "Hello world")
    assert (choice.message.refusal, choice.message.tool_calls) == (None, None)
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (5, 2, 7)


def test_every_option_reaches_the_model(client: OpenAI, model: FakeDeployments) -> None:
    tool = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
    create(
        client,
        n=3,
        seed=11,
        temperature=0.5,
        top_p=0.9,
        stop=["a", "b"],
        max_completion_tokens=9,
        logprobs=True,
        top_logprobs=2,
        tools=[tool],
        user="u",
        extra_body={"chat_template_kwargs": {"enable_thinking": False}},
    )
    (asked,) = model.asked
    assert asked == {
        "model": "tiny",
        "messages": HI,
        "n": 3,
        "seed": 11,
        "temperature": 0.5,
        "top_p": 0.9,
        "stop": ["a", "b"],
        "max_completion_tokens": 9,
        "logprobs": True,
        "top_logprobs": 2,
        "tools": [tool],
        "user": "u",
        "chat_template_kwargs": {"enable_thinking": False},
    }


def test_several_answers_keep_their_order_and_their_tokens(client: OpenAI) -> None:
    answer = create(client, n=2, logprobs=True, top_logprobs=1)
    assert [choice.index for choice in answer.choices] == [0, 1]
    for choice in answer.choices:
        assert choice.message.content == "Hello world"
        first = choice.logprobs.content[0]
        assert (first.token, first.logprob, bytes(first.bytes)) == ("Hello ", -0.5, b"Hello ")
        assert [top.token for top in first.top_logprobs] == ["Hello "]
    assert answer.usage.completion_tokens == 4


def test_a_stream_adds_up_to_the_answer(client: OpenAI) -> None:
    chunks = list(create(client, stream=True, n=2))
    assert len({(chunk.id, chunk.created, chunk.object, chunk.model) for chunk in chunks}) == 1
    assert chunks[0].object == "chat.completion.chunk"
    for index in range(2):
        mine = [choice for chunk in chunks for choice in chunk.choices if choice.index == index]
        assert mine[0].delta.role == "assistant"
        assert "".join(choice.delta.content or "" for choice in mine) == "Hello world"
        assert [choice.finish_reason for choice in mine] == [None, None, None, "stop"]
    assert all(chunk.usage is None for chunk in chunks)


def test_a_stream_ends_with_its_usage_where_it_was_asked_for(client: OpenAI) -> None:
    *chunks, last = create(client, stream=True, stream_options={"include_usage": True})
    assert all(chunk.usage is None and "usage" in chunk.model_fields_set for chunk in chunks)
    assert (last.choices, last.usage.total_tokens) == ([], 7)


def test_a_stream_can_tell_its_usage_all_along(client: OpenAI) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    chunks = list(create(client, stream=True, stream_options=options))
    assert [chunk.usage.completion_tokens for chunk in chunks] == [0, 1, 2, 2, 2]


def test_a_stream_has_tokens_where_they_were_asked_for(client: OpenAI) -> None:
    chunks = list(create(client, stream=True, logprobs=True))
    tokens = [choice.logprobs.content[0].token for chunk in chunks for choice in chunk.choices if choice.logprobs]
    assert tokens == ["Hello ", "world"]


def test_tool_calls_reach_the_client_whole_and_streamed(tmp_path: Path) -> None:
    call = ToolCall("c1", "add", '{"a": 1}')
    script = (Started((1,)), Delta(0, "I add: ", drawn=9), Finished(0, "tool_calls", 9, (call,), "I add:"), Done(1, 9))
    with services(tmp_path, deployments=FakeDeployments(*script)) as given, connected(given) as client:
        (choice,) = create(client).choices
        streamed = [chunk.choices[0] for chunk in create(client, stream=True)]
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", "I add:")
    assert [found.model_dump(exclude_unset=True) for found in choice.message.tool_calls] == [call.as_dict()]
    assert streamed[-1].finish_reason == "tool_calls"
    (found,) = streamed[-1].delta.tool_calls
    assert (found.index, found.id, found.function.name, found.function.arguments) == (0, "c1", "add", '{"a": 1}')


def test_the_stream_on_the_wire_is_openais(client: OpenAI) -> None:
    body = {"model": "tiny", "messages": HI, "stream": True}
    response = httpx.post(f"{client.base_url}chat/completions", json=body)
    assert response.headers["content-type"].startswith("text/event-stream")
    first, *_, last = response.text.strip().split("\n\n")
    assert last == "data: [DONE]"
    assert json.loads(first.removeprefix("data: "))["choices"] == [
        {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None, "logprobs": None}
    ]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (NotFound("no model 'tiny'", param="model"), openai.NotFoundError),
        (Unavailable("the queue is full", retry_after=3), openai.InternalServerError),
    ],
)
def test_an_error_before_the_first_piece_has_its_own_status(
    tmp_path: Path, error: Exception, kind: type[openai.APIStatusError], stream: bool
) -> None:
    with (
        services(tmp_path, deployments=FakeDeployments(error)) as given,
        connected(given) as client,
        pytest.raises(kind) as caught,
    ):
        create(client, stream=stream)
    assert str(error) in caught.value.message
    if isinstance(error, Unavailable):
        assert (caught.value.status_code, caught.value.response.headers["retry-after"]) == (503, "3")


@pytest.mark.parametrize(
    ("error", "message"),
    [(Unavailable("the model process has ended"), "the model process has ended"), (ZeroDivisionError(), "its log")],
)
def test_an_error_in_mid_stream_reaches_the_client(tmp_path: Path, error: Exception, message: str) -> None:
    model = FakeDeployments(Started((1,)), Delta(0, "Hel"), error)
    with services(tmp_path, deployments=model) as given, connected(given) as client:
        stream = create(client, stream=True)
        with pytest.raises(openai.APIError, match=message):
            list(stream)


def test_a_client_that_goes_away_in_mid_stream_cancels_the_answer(tmp_path: Path) -> None:
    model = FakeDeployments(Started((1,)), Delta(0, "Hel"), None)
    with services(tmp_path, deployments=model) as given, connected(given) as client:
        stream = create(client, stream=True)
        next(stream)
        stream.close()
        assert model.cancelled.wait(30)


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_does_not_wait_cancels_the_answer(tmp_path: Path, stream: bool) -> None:
    model = FakeDeployments(None)
    with services(tmp_path, deployments=model) as given, connected(given, timeout=0.3) as client:
        with pytest.raises(openai.APITimeoutError):
            create(client, stream=stream)
        assert model.cancelled.wait(30)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"logit_bias": {"7": 100}}, "logit_bias"),
        ({"frequency_penalty": 0.5}, "frequency_penalty"),
        ({"presence_penalty": -1}, "presence_penalty"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "a"}}}, "response_format"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"functions": [{"name": "add"}]}, "functions"),
        ({"tool_choice": "required", "tools": [{"type": "function", "function": {"name": "a"}}]}, "tool_choice"),
        ({"tools": [{"type": "custom", "custom": {"name": "a"}}]}, "tools[0]"),
        ({"web_search_options": {}}, "web_search_options"),
        ({"verbosity": "low"}, "verbosity"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"extra_body": {"top_k": 3}}, "top_k"),
        ({"temperature": 3}, "temperature"),
        ({"n": 0}, "n"),
        ({"max_completion_tokens": 0}, "max_completion_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "function", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": "x", "audio": {"id": "a"}}]}, "messages[0].audio"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://a"}}]}]},
            "messages[0].content[0]",
        ),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(client: OpenAI, fields: dict[str, Any], param: str) -> None:
    assert refused(client, **fields).param == param


@pytest.mark.parametrize(
    "fields",
    [
        {"frequency_penalty": 0, "presence_penalty": 0, "logit_bias": {}},
        {"modalities": ["text"], "verbosity": "medium", "service_tier": "auto", "store": False},
        {"metadata": {"a": "b"}, "prediction": {"type": "content", "content": "x"}, "safety_identifier": "x"},
    ],
)
def test_what_changes_nothing_is_accepted(client: OpenAI, fields: dict[str, Any]) -> None:
    assert create(client, **fields).choices[0].message.content == "Hello world"
