"""A model process without models, for tests of what supervises and asks one. Runs as the real one does:

    python fake_engine.py SOCKET --parent PID

Loads anything but `missing` (ModelError) and `deadly` (the process dies). A request is answered
word by word with its last message; the word `wait` never comes.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path

from strop.errors import Conflict, ModelError, NotFound
from strop.serve.app import create_app
from strop.serve.generate import Conversation, Delta, Done, Event, Finished, GenerateRequest, Started
from strop.serve.server import SocketServer
from strop.serve.state import EngineState, ModelState

MEMORY = 1000


class FakeHost:
    """The models of the process: names."""

    def __init__(self) -> None:
        self.models: dict[str, ModelState] = {}

    async def load(self, name: str, source: str) -> ModelState:
        print(f"loading {source} as {name}", flush=True)
        if source.endswith("deadly"):
            os._exit(9)
        if source.endswith("missing"):
            raise ModelError(f"{name}: no model there")
        if name in self.models and self.models[name].source != source:
            raise Conflict(f"{name} is loaded from {self.models[name].source}")
        return self.models.setdefault(name, ModelState(name, source, None, MEMORY, 0, 0, 0, 100))

    async def unload(self, name: str) -> None:
        self.models.pop(name, None)

    def state(self) -> EngineState:
        return EngineState(tuple(self.models.values()), MEMORY * len(self.models), 2**30, "cpu")

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Event]:
        if request.model not in self.models:
            raise NotFound(f"{request.model} is not loaded", param="model")
        assert isinstance(request.prompt, Conversation)
        words = request.prompt.messages[-1].content.split()
        self._busy(request.model, 1)
        try:
            yield Started(tuple(range(10)))
            for index in range(request.n):
                for word in words:
                    if word == "wait":
                        await asyncio.Event().wait()
                    yield Delta(index, f"{word} ", drawn=1)
                yield Finished(index, "stop", len(words))
        finally:
            self._busy(request.model, -1)
        yield Done(10, request.n * len(words))

    def _busy(self, name: str, change: int) -> None:
        if name in self.models:
            self.models[name] = replace(self.models[name], in_flight=self.models[name].in_flight + change)


async def main() -> int:
    return await SocketServer(create_app(FakeHost()), Path(sys.argv[1]), int(sys.argv[3])).run_until_ended()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
