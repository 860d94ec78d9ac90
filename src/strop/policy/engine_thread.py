"""One thread that decodes: it steps the engines of all models in turn.

Other threads submit requests and receive tokens through callbacks. No tensor leaves the thread.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue

import torch

from strop.errors import StropError
from strop.policy.draw import Alternatives
from strop.policy.engine import Engine, Request
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
    done: bool = False
    """Whether this is the last report."""
    error: Exception | None = None
    """Reason for the end; only in the last report."""


Report = Callable[[Progress], None]
"""Called in the engine thread after each step of a request. Must not block or raise."""


@dataclass(eq=False)
class Ticket:
    """A request for the thread."""

    engine: Engine
    prompt_ids: Sequence[int]
    count: int
    params: SamplingParams
    report: Report
    request: Request | None = None
    """The engine's own record, once the thread has submitted it."""
    reported: list[int] = field(default_factory=list)
    """Tokens of each completion that were reported."""
    ended: set[int] = field(default_factory=set)

    def submit(self) -> None:
        """Queue the request in the engine; for the engine thread."""
        self.request = self.engine.submit(self.prompt_ids, self.count, self.params)
        self.reported = [0] * self.count

    def progress(self) -> Progress:
        """What is new since the last call; for the engine thread."""
        assert self.request is not None
        drawn: list[Drawn] = []
        ended = []
        for index, ids in enumerate(self.request.ids):
            drawn += (self._drawn(self.request, index, place) for place in range(self.reported[index], len(ids)))
            self.reported[index] = len(ids)
            completion = self.request.completions[index]
            if completion is not None and index not in self.ended:
                self.ended.add(index)
                ended.append((index, completion.stop_reason))
        return Progress(tuple(drawn), tuple(ended), self.request.done)

    @staticmethod
    def _drawn(request: Request, index: int, place: int) -> Drawn:
        alternatives = request.alternatives[index]
        return Drawn(
            index,
            request.ids[index][place],
            request.logprobs[index][place],
            alternatives[place] if alternatives else (),
        )


class EngineThread:
    """The thread, for any number of engines. It ends by `close`, or when this object is collected."""

    def __init__(self, on_failure: Callable[[Exception], None] = lambda error: None) -> None:
        """`on_failure` is called in the thread with an error that no request is to blame for, such as
        a failed device. Every request fails with that error from then on.
        """
        self._work: SimpleQueue[_Work] = SimpleQueue()
        loop = _Loop(self._work, on_failure)  # which must not refer to this object
        self._thread = threading.Thread(target=loop.run, name="engine", daemon=True)
        self._thread.start()
        weakref.finalize(self, _end, self._work, self._thread)

    def submit(self, tickets: Sequence[Ticket]) -> None:
        """Queue requests that enter their engines together, before the next step.

        Errors come through `Ticket.report`, those for requests that an engine refuses included.
        """
        self._work.put(lambda loop: loop.begin(tickets))

    def cancel(self, ticket: Ticket) -> None:
        """Forget a request before the next step. Nothing of it is reported from then on."""
        self._work.put(lambda loop: loop.give_up(ticket))

    def retire(self, engine: Engine, error: StropError) -> Future[None]:
        """Fail everything that an engine has to do; done once the thread no longer holds it."""
        done: Future[None] = Future()
        self._work.put(lambda loop: loop.retire(engine, error, done))
        return done

    def close(self) -> None:
        """End the thread after the step that it is in."""
        self._work.put(None)
        self._thread.join()


def _end(work: SimpleQueue[_Work], thread: threading.Thread) -> None:
    """End the thread. At exit too, and not without it: torch aborts the process where it is cut short."""
    work.put(None)
    if thread is not threading.current_thread():
        thread.join()


class _Loop:
    """What runs in the thread."""

    def __init__(self, work: SimpleQueue[_Work], on_failure: Callable[[Exception], None]) -> None:
        self._work = work
        self._on_failure = on_failure
        self._tickets: list[Ticket] = []
        self._broken: Exception | None = None

    def run(self) -> None:
        running = True
        while running:
            try:
                running = self._take_work()
                for engine in {id(ticket.engine): ticket.engine for ticket in self._tickets if running}.values():
                    self._step(engine)
            except Exception as error:  # of the device, or a defect of ours
                self._broken = error
                self._fail(list(self._tickets), error)
                self._on_failure(error)

    def begin(self, tickets: Sequence[Ticket]) -> None:
        for ticket in tickets:
            try:
                if self._broken is not None:
                    raise self._broken
                ticket.submit()
            except Exception as error:
                ticket.report(Progress(done=True, error=error))
            else:
                self._tickets.append(ticket)

    def give_up(self, ticket: Ticket) -> None:
        if ticket in self._tickets:
            self._tickets.remove(ticket)
            assert ticket.request is not None
            ticket.engine.cancel(ticket.request)
            if not ticket.engine.busy:
                ticket.engine.release()

    def retire(self, engine: Engine, error: StropError, done: Future[None]) -> None:
        engine.abort()
        self._fail(self._of(engine), error)
        done.set_result(None)

    def _take_work(self) -> bool:
        """Do what was asked for meanwhile; wait for it where nothing is to be decoded."""
        try:
            while True:
                work = self._work.get(block=not self._tickets)
                if work is None:
                    return False
                work(self)
        except Empty:
            return True

    def _of(self, engine: Engine) -> list[Ticket]:
        return [ticket for ticket in self._tickets if ticket.engine is engine]

    def _step(self, engine: Engine) -> None:
        shed: Sequence[Request] = ()
        fault: Exception | None = None
        try:
            engine.step()
        except torch.AcceleratorError:
            raise  # nothing on that device works any more
        except Exception as error:
            shed, fault = engine.shed(error), error
        if not engine.busy:
            engine.release()  # before callers learn of the end: training needs the memory
        if fault is not None:
            self._fail([ticket for ticket in self._of(engine) if ticket.request in shed], fault)
        for ticket in self._of(engine):
            progress = ticket.progress()
            if progress.done:
                self._tickets.remove(ticket)
            if progress.drawn or progress.ended:
                ticket.report(progress)

    def _fail(self, tickets: Sequence[Ticket], error: Exception) -> None:
        for ticket in tickets:
            self._tickets.remove(ticket)
            ticket.report(Progress(done=True, error=error))


_Work = Callable[[_Loop], None] | None
"""What the thread does between two steps; None ends it."""
