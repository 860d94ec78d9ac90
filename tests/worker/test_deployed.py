"""Rows answered by the server's model process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence

import pytest

from strop.errors import Conflict, InvalidRequest, ModelError, NotFound, StropError, Unavailable
from strop.serve.wire import ChatRequest, Delta, Done, Event, Finished
from strop.types import Context, Failure, Message, SamplingParams, StopReason, Turn
from strop.worker.deployed import DeployedCompleter

CONTEXT = Context((Message("user", "2 + 2?"),), where="line 1")
PARAMS = SamplingParams(temperature=0.5, max_tokens=8, top_p=0.9, stop=("END",), seed=3)


class Process:
    """An `EngineClient` that answers with two pieces for each completion, after some errors."""

    def __init__(self, *errors: StropError, broken: Sequence[StropError] = ()) -> None:
        self.errors = list(errors)
        self.broken = list(broken)
        self.asked: list[ChatRequest] = []
        self.loaded: list[tuple[str, str]] = []

    async def load(self, name: str, source: str) -> None:
        if self.broken:
            raise self.broken.pop(0)
        self.loaded.append((name, source))

    async def generate(self, request: ChatRequest) -> AsyncGenerator[Event]:
        self.asked.append(request)
        if self.errors:
            yield Delta(0, "half an ans")
            raise self.errors.pop(0)
        for index in reversed(range(request.n)):
            yield Delta(index, "it is ")
            yield Delta(index, f"{index} END")
            yield Finished(index, "length" if index else "stop", 5 + index)
        yield Done(7, 11)


def completer(process: Process) -> DeployedCompleter:
    return DeployedCompleter(process, "helper", "/models/m", {"think": False}, pauses=(0.0, 0.0))  # type: ignore[arg-type]


def complete(process: Process, count: int = 2) -> list[Turn | Failure]:
    return asyncio.run(completer(process).complete(CONTEXT, count, PARAMS))


def turns(process: Process) -> list[Turn]:
    return [found for found in complete(process) if isinstance(found, Turn)]


def test_a_context_is_one_request_for_all_its_turns() -> None:
    process = Process()
    complete(process)
    (asked,) = process.asked
    assert (asked.model, asked.n, asked.max_tokens, asked.temperature, asked.top_p) == ("helper", 2, 8, 0.5, 0.9)
    assert (asked.stop, asked.seed, asked.template) == (("END",), 3, {"think": False})
    assert asked.messages == ({"role": "user", "content": "2 + 2?"},)


def test_answers_are_put_together_from_their_pieces() -> None:
    first, second = turns(Process())
    assert [first.message.content, second.message.content] == ["it is 0 ", "it is 1 "]
    assert [first.length, second.length] == [5, 6]
    assert [first.stop_reason, second.stop_reason] == [StopReason.STOP, StopReason.LENGTH]
    assert (first.entropy, first.tokens) == (None, None)


def test_a_process_that_is_started_anew_is_waited_for() -> None:
    process = Process(Unavailable("starting"), Unavailable("starting"))
    assert [turn.message.content for turn in turns(process)] == ["it is 0 ", "it is 1 "]
    assert len(process.asked) == 3


def test_a_model_that_was_unloaded_is_loaded_again() -> None:
    process = Process(NotFound("no model"))
    assert len(turns(process)) == 2
    assert process.loaded == [("helper", "/models/m")]


def test_a_process_that_stays_down_is_a_failure_and_no_score() -> None:
    assert complete(Process(*[Unavailable("down")] * 9)) == [Failure("server", "down")] * 2


def test_a_row_that_the_model_cannot_take_fails_at_once() -> None:
    process = Process(InvalidRequest("too long"))
    assert complete(process) == [Failure("refused", "too long")] * 2
    assert len(process.asked) == 1


def test_loading_waits_for_the_process_but_not_for_a_model_that_cannot_be_loaded() -> None:
    process = Process(broken=[Unavailable("starting")])
    asyncio.run(completer(process).load())
    assert process.loaded == [("helper", "/models/m")]
    with pytest.raises(ModelError, match="damaged"):
        asyncio.run(completer(Process(broken=[ModelError("damaged")])).load())


def test_what_a_deployment_has_loaded_is_what_is_measured() -> None:
    asyncio.run(completer(Process(broken=[Conflict("loaded from elsewhere")])).load())
