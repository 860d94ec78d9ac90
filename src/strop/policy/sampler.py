"""Sampling in this process: coroutines share one engine, and no decode step blocks the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from strop.policy.engine import Engine
from strop.policy.engine_thread import EngineThread, Progress, Ticket
from strop.types import Completion, SamplingParams


class LocalSampler:
    """A `Sampler` over an engine that a thread steps.

    Requests of one event-loop iteration reach the thread as one batch. A training step asks for
    all of its prompts at once, so that they enter the engine together and in the same order at
    every run, however threads are scheduled: that keeps resumed runs bit-equal.
    """

    def __init__(self, engine: Engine, on_progress: Callable[[Progress], None] | None = None) -> None:
        """`on_progress` is called in the event loop with the result of each step, before the last call returns."""
        self._engine = engine
        self._on_progress = on_progress
        self._thread = EngineThread()
        self._pending: list[Ticket] = []

    async def sample(self, prompt_ids: Sequence[int], count: int, params: SamplingParams) -> list[Completion]:
        """`count` completions of one prompt, decoded together with all other calls in flight.

        Raises ModelError for a prompt that does not fit, and what a decode step failed with.
        """
        if count == 0:
            return []
        loop = asyncio.get_running_loop()
        future: asyncio.Future[list[Completion]] = loop.create_future()

        def hear(progress: Progress) -> None:
            if self._on_progress is not None:
                self._on_progress(progress)
            if progress.done:
                _settle(future, ticket, progress.error)

        def report(progress: Progress) -> None:
            if self._on_progress is not None or progress.done:
                with suppress(RuntimeError):  # the loop has been closed
                    loop.call_soon_threadsafe(hear, progress)

        ticket = Ticket(self._engine, tuple(prompt_ids), count, params, report)
        self._submit(ticket, loop.call_soon)
        try:
            return await future
        except asyncio.CancelledError:
            self._cancel(ticket)
            raise

    def _submit(self, ticket: Ticket, call_soon: Callable[[Callable[[], None]], object]) -> None:
        if not self._pending:
            call_soon(self._hand_over)
        self._pending.append(ticket)

    def _hand_over(self) -> None:
        if self._pending:
            self._thread.submit(self._pending)
            self._pending = []

    def _cancel(self, ticket: Ticket) -> None:
        if ticket in self._pending:
            self._pending.remove(ticket)
        else:
            self._thread.cancel(ticket)


def _settle(future: asyncio.Future[list[Completion]], ticket: Ticket, error: Exception | None) -> None:
    if future.done():  # its caller may have been cancelled
        return
    if error is not None:
        future.set_exception(error)
    else:
        assert ticket.request is not None
        future.set_result([completion for completion in ticket.request.completions if completion is not None])
