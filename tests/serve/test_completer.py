"""Rows answered by the server's model process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest

from strop.errors import Conflict, ContextOverflow, InvalidRequest, ModelError, NotFound, StropError, Unavailable
from strop.serve.answers import Answer
from strop.serve.bodies import ChatBody
from strop.serve.client import CHAT
from strop.serve.completer import DeployedCompleter
from strop.serve.generate import Conversation, Delta, Done, Event, Finished, GenerateRequest, Started, Token
from strop.types import Context, Failure, Message, SamplingParams, StopReason, Turn, TurnTokens

CONTEXT = Context((Message("user", "2 + 2?"),), where="line 1")
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
    for index in range(request.n):
        ids = (7, 8, index)
        yield Delta(index, f"it is {index} ", tuple(Token("x", id, -0.5, (120,)) for id in ids), ids)
        yield Finished(index, "length" if index else "stop", 3)
    yield Done(2, 3 * request.n)


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
    assert (asked.stop, asked.seed) == (("END",), 3)
    assert asked.prompt == Conversation(CONTEXT.messages, (), {"think": False})


def test_turns_have_exact_ids_and_log_probabilities() -> None:
    first, second = turns(Process())
    assert [first.message.content, second.message.content] == ["it is 0 ", "it is 1 "]
    assert [first.length, second.length] == [3, 3]
    assert [first.stop_reason, second.stop_reason] == [StopReason.STOP, StopReason.LENGTH]
    assert first.tokens == TurnTokens((1, 2), (7, 8, 0), (-0.5, -0.5, -0.5), False)
    assert second.tokens and second.tokens.token_ids_T == (7, 8, 1)


@pytest.mark.parametrize(
    ("known", "input_ids", "new_segment"), [((1,), (2,), False), ((1, 3), (1, 2), True), ((1, 2, 3), (1, 2), True)]
)
def test_a_prompt_that_does_not_extend_what_was_said_begins_a_segment(
    known: tuple[int, ...], input_ids: tuple[int, ...], new_segment: bool
) -> None:
    context = Context(CONTEXT.messages, ids_T=known)
    (turn,) = asyncio.run(completer(Process()).complete(context, 1, PARAMS))
    assert isinstance(turn, Turn) and turn.tokens
    assert (turn.tokens.input_ids_T, turn.tokens.new_segment) == (input_ids, new_segment)


def test_a_conversation_that_leaves_fewer_tokens_gets_those_and_one_that_leaves_none_ends() -> None:
    process = Process(ContextOverflow("too long"))
    assert len(turns(process)) == 2
    assert [asked.max_tokens for asked in process.asked] == [8, None]
    with pytest.raises(ContextOverflow):
        complete(Process(ContextOverflow("too long"), ContextOverflow("too long")))


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
