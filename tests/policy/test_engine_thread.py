"""The thread that decodes: turns, reports, and errors that no request is to blame for."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from models import TinyModels, random_ids
from strop.errors import ModelError, Unavailable
from strop.policy.attention import Layout
from strop.policy.engine import Engine
from strop.policy.engine_thread import EngineThread, Progress, Ticket
from strop.policy.model import Policy
from strop.types import SamplingParams

WAIT_S = 30


class Broken(Policy):
    """A policy whose device has failed, or whose memory is used up."""

    error: Exception = torch.AcceleratorError("device-side assert")

    def hidden(self, ids: Tensor, layout: Layout) -> Tensor:
        raise self.error


def broken(policy: Policy, error: Exception | None = None) -> Broken:
    found = Broken(policy.model, policy.tokenizer, policy.name, policy.source)
    if error is not None:
        found.error = error
    return found


def params(**settings: Any) -> SamplingParams:
    return SamplingParams(**{"temperature": 1.0, "max_tokens": 12, "seed": 5, **settings})


@pytest.fixture
def failures() -> queue.SimpleQueue[Exception]:
    return queue.SimpleQueue()


@pytest.fixture
def thread(failures: queue.SimpleQueue[Exception]) -> Iterator[EngineThread]:
    thread = EngineThread(failures.put)
    yield thread
    thread.close()


def submit(
    thread: EngineThread, engine: Engine, prompt: list[int], count: int, heard: Heard, params: SamplingParams
) -> Ticket:
    ticket = Ticket(engine, prompt, count, params, heard.reports.put)
    thread.submit([ticket])
    return ticket


class Heard:
    """What was reported of a request."""

    def __init__(self) -> None:
        self.reports: queue.SimpleQueue[Progress] = queue.SimpleQueue()

    def all(self, count: int) -> tuple[list[list[int]], Exception | None]:
        """Ids of the completions once they have ended, and the error that ended them."""
        ids: list[list[int]] = [[] for _ in range(count)]
        ended: set[int] = set()
        while len(ended) < count:
            progress = self.reports.get(timeout=WAIT_S)
            if progress.error is not None:
                return ids, progress.error
            for drawn in progress.drawn:
                assert drawn.index not in ended
                ids[drawn.index].append(drawn.id)
            ended |= {index for index, _ in progress.ended}
        return ids, None


def test_every_token_is_reported_once(tiny: TinyModels, thread: EngineThread) -> None:
    policy = tiny.policy("llama")
    alone = Engine(policy, 4)
    request = alone.submit(random_ids(9, 1), 3, params())
    while alone.busy:
        alone.step()
    heard = Heard()
    submit(thread, Engine(policy, 4), random_ids(9, 1), 3, heard, params())
    assert heard.all(3) == (request.ids, None)


def test_a_cancelled_request_is_heard_of_no_more(tiny: TinyModels, thread: EngineThread) -> None:
    engine, gone, other = Engine(tiny.policy("llama"), 2), Heard(), Heard()
    ticket = submit(thread, engine, random_ids(4, 1), 2, gone, params(max_tokens=400))
    gone.reports.get(timeout=WAIT_S)
    thread.cancel(ticket)
    thread.cancel(ticket)
    submit(thread, engine, random_ids(4, 2), 2, other, params())
    other.all(2)
    heard = gone.reports.qsize()
    assert engine.in_flight == engine.queued == engine.cache_bytes == 0
    assert gone.reports.qsize() == heard < 400


def test_an_engine_that_is_retired_fails_its_requests_and_holds_nothing(tiny: TinyModels, thread: EngineThread) -> None:
    engine, heard = Engine(tiny.policy("llama"), 1), [Heard(), Heard()]
    for one in heard:
        submit(thread, engine, random_ids(4, 1), 1, one, params(max_tokens=400))
    heard[0].reports.get(timeout=WAIT_S)
    thread.retire(engine, Unavailable("gone")).result(WAIT_S)
    for one in heard:
        assert isinstance(one.all(1)[1], Unavailable)
    assert not engine.busy and engine.cache_bytes == 0


def test_a_request_that_the_engine_refuses_is_told_so(tiny: TinyModels, thread: EngineThread) -> None:
    heard = Heard()
    submit(thread, Engine(tiny.policy("llama"), 1), random_ids(600, 1), 1, heard, params())
    assert isinstance(heard.all(1)[1], ModelError)


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("x"), RuntimeError("shape")])
def test_an_error_of_a_model_is_its_own(
    tiny: TinyModels, thread: EngineThread, failures: queue.SimpleQueue[Exception], error: Exception
) -> None:
    policy, bad, good = tiny.policy("llama"), Heard(), Heard()
    submit(thread, Engine(broken(policy, error), 2), random_ids(4, 1), 1, bad, params())
    submit(thread, Engine(policy, 2), random_ids(4, 1), 1, good, params())
    assert bad.all(1)[1] is error
    assert good.all(1)[1] is None
    assert failures.empty()


def test_after_a_failed_device_every_request_fails_and_none_waits_for_ever(
    tiny: TinyModels, thread: EngineThread, failures: queue.SimpleQueue[Exception]
) -> None:
    heard = [Heard(), Heard(), Heard()]
    submit(thread, Engine(tiny.policy("llama"), 2), random_ids(4, 1), 1, heard[0], params(max_tokens=400))
    heard[0].reports.get(timeout=WAIT_S)
    submit(thread, Engine(broken(tiny.policy("llama")), 2), random_ids(4, 1), 1, heard[1], params())
    assert isinstance(failures.get(timeout=WAIT_S), torch.AcceleratorError)
    submit(thread, Engine(tiny.policy("llama"), 2), random_ids(4, 1), 1, heard[2], params())
    for one in heard:
        assert isinstance(one.all(1)[1], torch.AcceleratorError)


def test_the_memory_is_free_when_the_last_report_comes(tiny: TinyModels, thread: EngineThread) -> None:
    engine, left = Engine(tiny.policy("llama"), 2), queue.SimpleQueue[int]()

    def report(progress: Progress) -> None:
        if progress.done:
            left.put(engine.cache_bytes)

    thread.submit([Ticket(engine, random_ids(4, 1), 2, params(), report)])
    assert left.get(timeout=WAIT_S) == 0


def test_a_thread_ends_with_its_owner() -> None:
    def running() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name == "engine"]

    before = running()
    owner = EngineThread()
    (started,) = [thread for thread in running() if thread not in before]
    del owner
    started.join(WAIT_S)
    assert not started.is_alive()


def test_a_thread_that_nobody_needs_any_more_has_ended_before_the_process_does() -> None:
    before = set(threading.enumerate())
    thread = EngineThread()
    (started,) = set(threading.enumerate()) - before
    del thread
    assert not started.is_alive()
