"""The thread that decodes: turns, reports, and errors that no request is to blame for."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from models import TinyModels, random_ids
from strop.errors import ModelError, StropError, Unavailable
from strop.policy.attention import Layout
from strop.policy.model import Policy
from strop.policy.sampler import Engine
from strop.serve.stepper import Progress, Stepper
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
def stepper(failures: queue.SimpleQueue[Exception]) -> Iterator[Stepper]:
    stepper = Stepper(failures.put)
    yield stepper
    stepper.close()


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


def test_every_token_is_reported_once(tiny: TinyModels, stepper: Stepper) -> None:
    policy = tiny.policy("llama")
    alone = Engine(policy, 4)
    request = alone.submit(random_ids(9, 1), 3, params())
    while alone.busy:
        alone.step()
    heard = Heard()
    stepper.submit(Engine(policy, 4), random_ids(9, 1), 3, params(), heard.reports.put)
    assert heard.all(3) == (request.ids, None)


def test_a_cancelled_request_is_heard_of_no_more(tiny: TinyModels, stepper: Stepper) -> None:
    engine, gone, other = Engine(tiny.policy("llama"), 2), Heard(), Heard()
    ticket = stepper.submit(engine, random_ids(4, 1), 2, params(max_tokens=400), gone.reports.put)
    gone.reports.get(timeout=WAIT_S)
    stepper.cancel(ticket)
    stepper.cancel(ticket)
    stepper.submit(engine, random_ids(4, 2), 2, params(), other.reports.put)
    other.all(2)
    heard = gone.reports.qsize()
    assert engine.in_flight == engine.queued == engine.cache_bytes == 0
    assert gone.reports.qsize() == heard < 400


def test_an_engine_that_is_retired_fails_its_requests_and_holds_nothing(tiny: TinyModels, stepper: Stepper) -> None:
    engine, heard = Engine(tiny.policy("llama"), 1), [Heard(), Heard()]
    for one in heard:
        stepper.submit(engine, random_ids(4, 1), 1, params(max_tokens=400), one.reports.put)
    heard[0].reports.get(timeout=WAIT_S)
    stepper.retire(engine, Unavailable("gone")).result(WAIT_S)
    for one in heard:
        assert isinstance(one.all(1)[1], Unavailable)
    assert not engine.busy and engine.cache_bytes == 0


def test_a_request_that_the_engine_refuses_is_told_so(tiny: TinyModels, stepper: Stepper) -> None:
    heard = Heard()
    stepper.submit(Engine(tiny.policy("llama"), 1), random_ids(600, 1), 1, params(), heard.reports.put)
    assert isinstance(heard.all(1)[1], ModelError)


@pytest.mark.parametrize(
    ("error", "kind"),
    [(torch.OutOfMemoryError("x"), Unavailable), (MemoryError(), Unavailable), (RuntimeError("shape"), RuntimeError)],
)
def test_an_error_of_a_model_is_its_own(
    tiny: TinyModels,
    stepper: Stepper,
    failures: queue.SimpleQueue[Exception],
    error: Exception,
    kind: type[Exception],
) -> None:
    policy, bad, good = tiny.policy("llama"), Heard(), Heard()
    stepper.submit(Engine(broken(policy, error), 2), random_ids(4, 1), 1, params(), bad.reports.put)
    stepper.submit(Engine(policy, 2), random_ids(4, 1), 1, params(), good.reports.put)
    assert type(bad.all(1)[1]) is kind
    assert good.all(1)[1] is None
    assert failures.empty()


def test_a_failed_device_ends_the_thread_and_everyone_hears_of_it(
    tiny: TinyModels, failures: queue.SimpleQueue[Exception]
) -> None:
    stepper, heard = Stepper(failures.put), [Heard(), Heard()]
    stepper.submit(Engine(tiny.policy("llama"), 2), random_ids(4, 1), 1, params(max_tokens=400), heard[0].reports.put)
    heard[0].reports.get(timeout=WAIT_S)
    stepper.submit(Engine(broken(tiny.policy("llama")), 2), random_ids(4, 1), 1, params(), heard[1].reports.put)
    assert isinstance(failures.get(timeout=WAIT_S), torch.AcceleratorError)
    for one in heard:
        error = one.all(1)[1]
        assert isinstance(error, StropError) and "device-side assert" in error.message
    stepper.close()
