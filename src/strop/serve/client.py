"""Talking to the model process: many calls over one connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path

from strop.errors import Unavailable
from strop.serve.wire import (
    Answer,
    Call,
    Cancel,
    ChatRequest,
    Delta,
    Done,
    EngineState,
    Event,
    Fault,
    Finished,
    Frame,
    GetState,
    Load,
    ModelState,
    Unload,
    reachable,
    read_frame,
)

_GONE = Fault(Unavailable.__name__, "the model process has ended; try again in a moment")


class EngineClient:
    """The model process behind a socket. Connects on first use, and again after a loss.

    For one event loop. Every call raises the StropError that the process answers with, and
    Unavailable where it is down or goes down meanwhile.
    """

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._connection: _Connection | None = None
        self._connecting = asyncio.Lock()

    @property
    def lost(self) -> bool:
        """Whether the process has hung up, and was not reached since."""
        return self._connection is not None and self._connection.lost

    async def load(self, name: str, source: str) -> ModelState:
        """Have a model in memory under `name`: a catalogue name, a hub id, or a folder of full
        weights or an adapter. Loading what is loaded already does nothing."""
        answer = await self._ask(Load(name, source))
        assert isinstance(answer, ModelState)
        return answer

    async def unload(self, name: str) -> None:
        """Forget a model and free its memory. What it was answering fails with Unavailable."""
        await self._ask(Unload(name))

    async def state(self) -> EngineState:
        """What is loaded, and how busy it is."""
        answer = await self._ask(GetState())
        assert isinstance(answer, EngineState)
        return answer

    async def generate(self, request: ChatRequest) -> AsyncGenerator[Event]:
        """Pieces of all completions as they come, `Done` last. Closing the iterator cancels the rest.

        Raises NotFound for a model that is not loaded, InvalidRequest for what it cannot answer.
        """
        async with aclosing(self._answers(request)) as answers:
            async for answer in answers:
                assert isinstance(answer, Delta | Finished | Done)
                yield answer

    async def close(self) -> None:
        """Hang up. Calls under way fail with Unavailable."""
        if self._connection is not None:
            await self._connection.close()

    async def _ask(self, call: Call) -> Answer:
        async with aclosing(self._answers(call)) as answers:
            return await anext(answers)

    async def _answers(self, call: Call) -> AsyncGenerator[Answer]:
        """Answers to one call, up to the last."""
        connection = await self._connected()
        with connection.stream() as (number, queue):
            last = False
            try:
                await connection.send(Frame(number, call))
                while not last:
                    answer = await queue.get()
                    last = not isinstance(answer, Delta | Finished)
                    if isinstance(answer, Fault):
                        raise answer.error()
                    yield answer
            finally:
                if not last:
                    connection.send_soon(Frame(number, Cancel()))

    async def _connected(self) -> _Connection:
        async with self._connecting:
            if self._connection is None or self._connection.lost:
                self._connection = await _Connection.open(self._socket)
            return self._connection


class _Connection:
    """One connection, and the calls under way on it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._queues: dict[int, asyncio.Queue[Answer]] = {}
        self._next = 0
        self.lost = False
        self._listener = asyncio.create_task(self._listen())

    @classmethod
    async def open(cls, socket: Path) -> _Connection:
        """Unavailable where nothing listens."""
        try:
            with reachable(socket) as path:
                return cls(*await asyncio.open_unix_connection(path))
        except OSError:
            raise Unavailable("the model process is not running; try again in a moment") from None

    @contextmanager
    def stream(self) -> Iterator[tuple[int, asyncio.Queue[Answer]]]:
        """A number that no other call has, and where its answers arrive."""
        self._next += 1
        number, queue = self._next, asyncio.Queue[Answer]()
        self._queues[number] = queue
        if self.lost:
            queue.put_nowait(_GONE)
        try:
            yield number, queue
        finally:
            del self._queues[number]

    async def send(self, frame: Frame) -> None:
        """Write a frame, waiting while the other side is slow to read. A loss shows in the queue."""
        self._writer.write(frame.encode())
        try:
            await self._writer.drain()
        except ConnectionError:
            self._lose()

    def send_soon(self, frame: Frame) -> None:
        """Write a small frame without waiting."""
        if not self._writer.is_closing():
            self._writer.write(frame.encode())

    async def close(self) -> None:
        self._listener.cancel()
        await asyncio.gather(self._listener, return_exceptions=True)

    async def _listen(self) -> None:
        try:
            while (frame := await read_frame(self._reader)) is not None:
                queue = self._queues.get(frame.stream)
                if queue is not None:  # else the call was given up meanwhile
                    queue.put_nowait(frame.body)  # type: ignore[arg-type]
        finally:
            self._lose()

    def _lose(self) -> None:
        if not self.lost:
            self.lost = True
            self._writer.close()
            for queue in self._queues.values():
                queue.put_nowait(_GONE)
