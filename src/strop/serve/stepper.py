"""One thread that decodes: it steps the engines of all models in turn.

Others hand it work and hear of tokens through callbacks; no tensor leaves it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue

import torch

from strop.errors import StropError, Unavailable
from strop.policy.draw import Alternatives
from strop.policy.sampler import Engine, Request
from strop.types import SamplingParams, StopReason


@dataclass(frozen=True)
class Drawn:
    """A token of one completion."""

    index: int
    id: int
    logprob: float
    alternatives: Alternatives


@dataclass(frozen=True)
class Progress:
    """What a step has brought one request."""

    drawn: tuple[Drawn, ...] = ()
    ended: tuple[tuple[int, StopReason], ...] = ()
    error: Exception | None = None
    """Why there will be no more."""


Report = Callable[[Progress], None]
"""Hears of a request after each step, in the stepper's thread. Must not block or raise."""


@dataclass(eq=False)
class Ticket:
    """A request at work."""

    engine: Engine
    prompt_ids: Sequence[int]
    count: int
    params: SamplingParams
    report: Report
    request: Request | None = None
    told: list[int] = field(default_factory=list)
    """Tokens of each completion that were reported."""
    ended: set[int] = field(default_factory=set)

    def progress(self) -> Progress:
        """What is new since the last call."""
        assert self.request is not None
        drawn: list[Drawn] = []
        ended = []
        for index, ids in enumerate(self.request.ids):
            drawn += (self._drawn(self.request, index, place) for place in range(self.told[index], len(ids)))
            self.told[index] = len(ids)
            completion = self.request.completions[index]
            if completion is not None and index not in self.ended:
                self.ended.add(index)
                ended.append((index, completion.stop_reason))
        return Progress(tuple(drawn), tuple(ended))

    @staticmethod
    def _drawn(request: Request, index: int, place: int) -> Drawn:
        alternatives = request.alternatives[index]
        beside = alternatives[place] if alternatives else ()
        return Drawn(index, request.ids[index][place], request.logprobs[index][place], beside)


class Stepper:
    """The thread. It ends by `close`, or by an error that no request is to blame for."""

    def __init__(self, on_failure: Callable[[Exception], None]) -> None:
        """`on_failure` is called in the thread, as its last act."""
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._tickets: list[Ticket] = []
        self._on_failure = on_failure
        self._thread = threading.Thread(target=self._run, name="stepper", daemon=True)
        self._thread.start()

    def submit(
        self, engine: Engine, prompt_ids: Sequence[int], count: int, params: SamplingParams, report: Report
    ) -> Ticket:
        """Queue a request. An error of the engine comes through `report` as well."""
        ticket = Ticket(engine, prompt_ids, count, params, report, told=[0] * count)
        self._work.put(lambda: self._begin(ticket))
        return ticket

    def cancel(self, ticket: Ticket) -> None:
        """Forget a request before the next step. Nothing of it is reported from then on."""
        self._work.put(lambda: self._give_up(ticket))

    def retire(self, engine: Engine, error: StropError) -> Future[None]:
        """Fail everything that an engine has to do; done once the thread no longer knows it."""
        done: Future[None] = Future()
        self._work.put(lambda: self._retire(engine, error, done))
        return done

    def close(self) -> None:
        """End the thread after the step that it is in."""
        self._work.put(None)
        self._thread.join()

    def _run(self) -> None:
        try:
            while self._take_work():
                for engine in {id(ticket.engine): ticket.engine for ticket in self._tickets}.values():
                    self._step(engine)
        except Exception as error:  # of the device, or of strop: there is no going on
            for ticket in self._tickets:
                ticket.report(Progress(error=Unavailable(f"the model process failed: {error}")))
            self._on_failure(error)

    def _take_work(self) -> bool:
        """Do what was asked for meanwhile; wait for it where nothing is to be decoded."""
        try:
            while True:
                work = self._work.get(block=not self._tickets)
                if work is None:
                    return False
                work()
        except Empty:
            return True

    def _begin(self, ticket: Ticket) -> None:
        try:
            ticket.request = ticket.engine.submit(ticket.prompt_ids, ticket.count, ticket.params)
        except StropError as error:
            ticket.report(Progress(error=error))
        else:
            self._tickets.append(ticket)

    def _give_up(self, ticket: Ticket) -> None:
        if ticket in self._tickets:
            self._tickets.remove(ticket)
            self._forget(ticket)

    def _forget(self, ticket: Ticket) -> None:
        assert ticket.request is not None
        ticket.engine.cancel(ticket.request)
        if not ticket.engine.busy:
            ticket.engine.release()

    def _retire(self, engine: Engine, error: StropError, done: Future[None]) -> None:
        for ticket in [ticket for ticket in self._tickets if ticket.engine is engine]:
            self._tickets.remove(ticket)
            ticket.report(Progress(error=error))
        engine.abort()
        done.set_result(None)

    def _step(self, engine: Engine) -> None:
        try:
            engine.step()
        except torch.AcceleratorError:
            raise  # nothing on that device works any more
        except Exception as error:
            self._fail(engine.shed(error), error)
        for ticket in [ticket for ticket in self._tickets if ticket.engine is engine]:
            assert ticket.request is not None
            progress = ticket.progress()
            if ticket.request.done:
                self._tickets.remove(ticket)
            if progress.drawn or progress.ended:
                ticket.report(progress)
        if not engine.busy:
            engine.release()

    def _fail(self, requests: Sequence[Request], error: Exception) -> None:
        for ticket in [ticket for ticket in self._tickets if ticket.request in requests]:
            self._tickets.remove(ticket)
            ticket.report(Progress(error=_for_clients(error)))


def _for_clients(error: Exception) -> Exception:
    """What a client gets to see."""
    out_of_memory = isinstance(error, torch.OutOfMemoryError | MemoryError) or "DefaultCPUAllocator" in str(error)
    if out_of_memory:
        return Unavailable("memory does not suffice for this request now; ask for fewer tokens, or try again later")
    return error
