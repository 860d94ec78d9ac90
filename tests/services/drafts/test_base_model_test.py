"""Tests of rewards on answers of a model, with the real scoring and answers of our own."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncGenerator, Callable, Iterator
from types import SimpleNamespace
from typing import Any

from strop.errors import NotFound, Unavailable
from strop.serve.answers import Answer
from strop.serve.bodies import ChatBody
from strop.serve.generate import Conversation, Delta, Done, Event, Finished, GenerateRequest, Started
from strop.services.drafts.base_model_test import ModelTest, Phase
from strop.services.drafts.draft import RewardPart, Trial

COUNT = RewardPart(name="length", source="def grade(sample, item): return float(len(sample.output_text))")


class Answering:
    """Deployments whose model says `a`, `aa`, `aaa` …; the last answer is cut off."""

    def __init__(self, refuse: Exception | None = None, hang: bool = False) -> None:
        self._refuse, self._hang = refuse, hang
        self.asked: list[GenerateRequest] = []
        self.closed = 0

    async def resolve(self, model: str) -> Any:
        if self._refuse:
            raise self._refuse
        return SimpleNamespace(name=f"deployed {model}", engine=SimpleNamespace(memory_bytes=123))

    async def list(self, limit: int) -> list[Any]:
        return []

    async def chat_stream(self, body: dict[str, Any]) -> AsyncGenerator[dict[str, Any]]:
        request = ChatBody.model_validate(body).request()
        self.asked.append(request)
        answer = Answer(request, usage=True, continuous=True)
        try:
            for event in self._events(request):
                for chunk in answer.chunks(event):
                    yield chunk
                if self._hang and isinstance(event, Delta):
                    await asyncio.Event().wait()
        finally:
            self.closed += 1

    def _events(self, request: GenerateRequest) -> Iterator[Event]:
        yield Started(tuple(range(7)))
        for index in range(request.n):
            for _ in range(index + 1):
                yield Delta(index, "a", drawn=1)
            yield Finished(index, "length" if index == request.n - 1 else "stop", index + 1)
        yield Done(7, sum(range(1, request.n + 1)))


def outcome(place: Any, deployments: Answering, draft: Any, **values: Any) -> tuple[ModelTest, list[Trial]]:
    """A test that has run to its end, and what it told."""
    told: list[Trial] = []

    async def work() -> ModelTest:
        services = dataclasses.replace(place.services, deployments=deployments)
        test = ModelTest(services, draft, **{"rows": 2, "samples": 3, **values})
        test.start(told.append)
        await until(lambda: not test.phase.running)
        return test

    return asyncio.run(work()), told


async def until(what: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not what():
            await asyncio.sleep(0.01)


def test_the_model_answers_and_the_rewards_score(place: Any) -> None:
    deployments = Answering()
    draft = place.draft(
        rewards=(COUNT,),
        values={"sampling.temperature": 0.5, "sampling.max_completion_tokens": 9, "sampling.stop": ["x"]},
    )
    test, told = outcome(place, deployments, draft)
    assert test.phase is Phase.DONE
    [trial] = told
    assert [row.line for row in trial.rows] == [1, 2]
    assert [[answer.reward for answer in row.answers] for row in trial.rows] == [[1, 2, 3]] * 2
    assert all(row.spread for row in trial.rows)
    assert (trial.answers, trial.tokens, trial.cut_off, trial.prompt_tokens) == (6, 12, 2, 14)
    assert (trial.memory_bytes, trial.of) == (123, draft.tested)
    request = deployments.asked[0]
    assert (request.model, request.n, request.max_tokens) == ("deployed smollm2-135m", 3, 9)
    assert (request.temperature, request.stop) == (0.5, ("x",))
    assert isinstance(request.prompt, Conversation)
    assert request.prompt.messages[-1].role == "user"
    assert deployments.asked[0].seed != deployments.asked[1].seed


def test_a_reward_that_cannot_be_read_is_refused_before_the_model_is_loaded(place: Any) -> None:
    deployments = Answering()
    draft = place.draft(rewards=(RewardPart(name="b", source="def grade("),))
    test, told = outcome(place, deployments, draft)
    assert test.phase is Phase.FAILED and test.fault is not None
    assert "not valid Python code" in test.fault.message
    assert (deployments.asked, told) == ([], [])


def test_a_reward_that_cannot_be_loaded_ends_the_test(place: Any) -> None:
    draft = place.draft(rewards=(RewardPart(name="b", source="import no_such_module\ngrade = 1"),))
    test, _ = outcome(place, Answering(), draft)
    assert test.phase is Phase.FAILED and test.fault is not None
    assert "no_such_module" in test.fault.message


def test_a_reward_that_fails_says_so_at_the_answers(place: Any) -> None:
    draft = place.draft(rewards=(RewardPart(name="b", source="def grade(sample, item): return 1 / 0"),))
    test, [trial] = outcome(place, Answering(), draft, rows=1)
    assert test.phase is Phase.DONE
    failures = [answer.failure for answer in trial.rows[0].answers]
    assert [failure.cause for failure in failures if failure] == ["exception"] * 3


def test_a_model_that_is_not_here_ends_the_test(place: Any) -> None:
    test, _ = outcome(place, Answering(NotFound("fetch it first")), place.draft())
    assert (test.phase, test.fault and test.fault.message) == (Phase.FAILED, "fetch it first")
    test, _ = outcome(place, Answering(Unavailable("no room")), place.draft())
    assert (test.phase, test.fault and test.fault.message) == (Phase.FAILED, "no room")


def test_a_test_can_be_stopped_and_the_model_stops_answering(place: Any) -> None:
    deployments = Answering(hang=True)

    async def work() -> ModelTest:
        services = dataclasses.replace(place.services, deployments=deployments)
        test = ModelTest(services, place.draft(), rows=2, samples=3)
        test.start(lambda trial: None)
        await until(lambda: len(deployments.asked) == 2)
        await test.stop()
        return test

    test = asyncio.run(work())
    assert test.phase is Phase.STOPPED
    assert deployments.closed == 2
