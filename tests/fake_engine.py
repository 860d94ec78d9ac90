"""A model process without models, for tests of what keeps and asks one. Runs as the real one does:

    python fake_engine.py serve SOCKET --parent PID

Loads anything but `missing` (ModelError) and `deadly` (the process dies). A request is answered
word by word with its last message; the word `wait` never comes.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from strop.errors import ModelError, NotFound
from strop.serve.wire import (
    Answer,
    Cancel,
    ChatRequest,
    Delta,
    Done,
    EngineState,
    Fault,
    Finished,
    Frame,
    GetState,
    Load,
    ModelState,
    Ok,
    Unload,
    read_frame,
)

MEMORY = 1000


class FakeEngine:
    """What one process holds."""

    def __init__(self) -> None:
        self.models: dict[str, ModelState] = {}
        self.answering = 0

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        calls: dict[int, asyncio.Task[None]] = {}
        while (frame := await read_frame(reader)) is not None:
            if isinstance(frame.body, Cancel):
                if call := calls.get(frame.stream):
                    call.cancel()
            else:
                calls[frame.stream] = asyncio.create_task(self._call(frame, writer))
        for call in calls.values():
            call.cancel()
        writer.close()

    async def _call(self, frame: Frame, writer: asyncio.StreamWriter) -> None:
        def send(answer: Answer) -> None:
            writer.write(Frame(frame.stream, answer).encode())

        match frame.body:
            case Load(name, source):
                send(self._load(name, source))
            case Unload(name):
                self.models.pop(name, None)
                send(Ok())
            case GetState():
                models = tuple(self.models.values())
                send(EngineState(models, MEMORY * len(models), 2**30, "cpu"))
            case ChatRequest():
                await self._answer(frame.body, send)

    def _load(self, name: str, source: str) -> Answer:
        print(f"loading {source} as {name}", flush=True)
        if source.endswith("deadly"):
            os._exit(9)
        if source.endswith("missing"):
            return Fault.of(ModelError(f"{name}: no model there"))
        self.models[name] = ModelState(name, source, None, MEMORY, 0, 0, 0, 100)
        return self.models[name]

    async def _answer(self, request: ChatRequest, send) -> None:  # type: ignore[no-untyped-def]
        if request.model not in self.models:
            send(Fault.of(NotFound(f"{request.model} is not loaded", param="model")))
            return
        words = str(request.messages[-1]["content"]).split()
        self._busy(request.model, 1)
        try:
            for index in range(request.n):
                for word in words:
                    if word == "wait":
                        await asyncio.Event().wait()
                    send(Delta(index, f"{word} "))
                send(Finished(index, "stop", len(words)))
        finally:
            self._busy(request.model, -1)
        send(Done(10, request.n * len(words)))

    def _busy(self, name: str, change: int) -> None:
        self.answering += change
        if name in self.models:
            state = self.models[name]
            self.models[name] = ModelState(name, state.source, None, MEMORY, 0, self.answering, 0, 100)


async def main() -> None:
    engine = FakeEngine()
    await asyncio.start_unix_server(engine.connected, Path(sys.argv[2]))
    while os.getppid() == int(sys.argv[4]):
        await asyncio.sleep(0.1)


if __name__ == "__main__":
    asyncio.run(main())
