"""The socket of a model process: reads calls, writes answers."""

from __future__ import annotations

import asyncio
import os
import signal
import traceback
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from functools import partial
from pathlib import Path

from strop.errors import ServerError, StropError
from strop.serve.engine import EngineSettings, ModelHost
from strop.serve.wire import (
    Answer,
    Call,
    Cancel,
    ChatRequest,
    Fault,
    Frame,
    GetState,
    Load,
    Ok,
    Unload,
    reachable,
    read_frame,
)

_PARENT_POLL_S = 1.0


def serve_engine(socket: Path, settings: EngineSettings, parent: int | None) -> int:
    """Answer calls until SIGTERM, or until the process `parent`, which started this one, has ended.

    Returns an exit status: 1 after an error that no request was to blame for.
    """
    return asyncio.run(_serve(socket, settings, parent))


async def _serve(socket: Path, settings: EngineSettings, parent: int | None) -> int:
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[int] = loop.create_future()

    def end(status: int) -> None:
        if not ended.done():
            ended.set_result(status)

    def fail(error: Exception) -> None:
        traceback.print_exception(error)
        loop.call_soon_threadsafe(end, 1)

    host = ModelHost(settings, fail, lambda line: print(line, flush=True))
    watch = asyncio.create_task(_watch(parent, end))
    try:
        with reachable(socket) as path:
            await asyncio.start_unix_server(lambda reader, writer: _answer_calls(host, reader, writer), path)
            socket.chmod(0o600)
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # at a terminal, Ctrl-C is for the server
            loop.add_signal_handler(signal.SIGTERM, end, 0)
            return await ended
    except OSError as error:
        raise ServerError(f"{socket}: no socket can be made there: {error.strerror}") from None
    finally:
        watch.cancel()
        host.close()


async def _watch(parent: int | None, end: Callable[[int], None]) -> None:
    """End with the process that started this one, also where the kernel does not see to that."""
    while parent is None or os.getppid() == parent:
        await asyncio.sleep(_PARENT_POLL_S)
    end(0)


async def _answer_calls(host: ModelHost, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One connection, until its client hangs up: then what it asked for is cancelled."""
    calls: dict[int, asyncio.Task[None]] = {}
    try:
        while (frame := await read_frame(reader)) is not None:
            number = frame.stream
            if isinstance(frame.body, Cancel):
                if number in calls:
                    calls[number].cancel()
                continue
            calls[number] = asyncio.create_task(_answer(host, frame, writer))
            calls[number].add_done_callback(partial(_forget, calls, number))
    except ServerError as error:
        print(error.message, flush=True)
    finally:
        for call in list(calls.values()):
            call.cancel()
        writer.close()


def _forget(calls: dict[int, asyncio.Task[None]], number: int, task: asyncio.Task[None]) -> None:
    del calls[number]


async def _answer(host: ModelHost, frame: Frame, writer: asyncio.StreamWriter) -> None:
    """One call, to its last answer."""
    with suppress(ConnectionError):  # whoever asked is gone
        try:
            async with aclosing(_answers(host, frame.body)) as answers:
                async for answer in answers:
                    await _send(frame.stream, answer, writer)
        except Exception as error:
            if not isinstance(error, StropError | ConnectionError):
                traceback.print_exception(error)
            await _send(frame.stream, Fault.of(error), writer)


async def _answers(host: ModelHost, call: Call | Answer) -> AsyncGenerator[Answer]:
    match call:
        case ChatRequest():
            async with aclosing(host.generate(call)) as events:
                async for event in events:
                    yield event
        case Load():
            # A client that goes away must not leave a model half loaded.
            yield await asyncio.shield(asyncio.create_task(host.load(call.name, call.source)))
        case Unload():
            await asyncio.shield(asyncio.create_task(host.unload(call.name)))
            yield Ok()
        case GetState():
            yield host.state()
        case _:
            yield Fault.of(ServerError(f"{type(call).__name__} is no call"))


async def _send(stream: int, answer: Answer, writer: asyncio.StreamWriter) -> None:
    writer.write(Frame(stream, answer).encode())
    await writer.drain()
