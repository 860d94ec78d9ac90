"""Rows answered by the server's model process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest

from strop.errors import Conflict, InvalidRequest, ModelError, NotFound, StropError, Unavailable
from strop.serve.answers import Answer
from strop.serve.bodies import ChatBody
from strop.serve.client import CHAT
from strop.serve.generate import Conversation, Delta, Done, Event, Finished, GenerateRequest, Started
from strop.types import Failure, Group, Message, Row, SamplingParams, StopReason
from strop.worker.deployed import DeployedEnvironment

ROW = Row("row-1", 1, (Message("user", "2 + 2?"),), (), "4", {})
PARAMS = SamplingParams(temperature=0.5, max_tokens=8, top_p=0.9, stop=("END",), seed=3)


class Process:
    """An `EngineClient` that answers after some errors."""

    def __init__(self, *errors: StropError, broken: Sequence[StropError] = ()) -> None:
        self.errors = list(errors)
        self.broken = list(broken)
        self.asked: list[GenerateRequest] = []
        self.loaded: list[tuple[str, str]] = []

    async def load(self, name: str, source: str) -> None:
        if self.broken:
            raise self.broken.pop(0)
        self.loaded.append((name, source))

    async def complete(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        assert path == CHAT
        request = ChatBody.model_validate(body).request()
        self.asked.append(request)
        if self.errors:
            raise self.errors.pop(0)
        return await Answer(request).whole(_events(request))


async def _events(request: GenerateRequest) -> AsyncGenerator[Event]:
    yield Started((1, 2))
    for index in reversed(range(request.n)):
        yield Delta(index, "it is ", ids=(3,) * 3)
        yield Delta(index, f"{index} END", ids=(4,) * (2 + index))
        yield Finished(index, "length" if index else "stop", 5 + index)
    yield Done(7, 11)


def environment(process: Process) -> DeployedEnvironment:
    return DeployedEnvironment(process, "helper", "/models/m", {"think": False}, pauses=(0.0, 0.0))  # type: ignore[arg-type]


def play(process: Process, count: int = 2) -> Group:
    return asyncio.run(environment(process).play(ROW, count, PARAMS))


def test_a_row_is_one_request_for_all_its_answers() -> None:
    process = Process()
    play(process)
    (asked,) = process.asked
    assert (asked.model, asked.n, asked.max_tokens, asked.temperature, asked.top_p) == ("helper", 2, 8, 0.5, 0.9)
    assert (asked.stop, asked.seed) == (("END",), 3)
    assert asked.prompt == Conversation(ROW.messages, (), {"think": False})


def test_answers_are_put_together_from_their_pieces() -> None:
    first, second = play(Process()).rollouts
    assert [first.messages[0].content, second.messages[0].content] == ["it is 0 ", "it is 1 "]
    assert [first.length, second.length] == [5, 6]
    assert [first.stop_reason, second.stop_reason] == [StopReason.STOP, StopReason.LENGTH]
    assert first.entropy is None


def test_a_process_that_is_started_anew_is_waited_for() -> None:
    process = Process(Unavailable("starting"), Unavailable("starting"))
    assert [rollout.messages[0].content for rollout in play(process).rollouts] == ["it is 0 ", "it is 1 "]
    assert len(process.asked) == 3


def test_a_model_that_was_unloaded_is_loaded_again() -> None:
    process = Process(NotFound("no model"))
    assert play(process).failure is None
    assert process.loaded == [("helper", "/models/m")]


def test_a_process_that_stays_down_is_a_failure_and_no_score() -> None:
    group = play(Process(*[Unavailable("down")] * 9))
    assert [rollout.failure for rollout in group.rollouts] == [Failure("server", "down")] * 2


def test_a_row_that_the_model_cannot_take_fails_at_once() -> None:
    process = Process(InvalidRequest("too long"))
    assert play(process).failure == Failure("refused", "too long")
    assert len(process.asked) == 1


def test_loading_waits_for_the_process_but_not_for_a_model_that_cannot_be_loaded() -> None:
    process = Process(broken=[Unavailable("starting")])
    asyncio.run(environment(process).load())
    assert process.loaded == [("helper", "/models/m")]
    with pytest.raises(ModelError, match="damaged"):
        asyncio.run(environment(Process(broken=[ModelError("damaged")])).load())


def test_what_a_deployment_has_loaded_is_what_is_measured() -> None:
    asyncio.run(environment(Process(broken=[Conflict("loaded from elsewhere")])).load())
