"""Supervision of the model process: started when a model is first wanted, and again when it dies.

The process ends with the server: the kernel kills it, and where the kernel cannot, it watches
its parent itself. After a crash, the models that were loaded are loaded again; requests under
way fail with Unavailable, since half an answer cannot be continued.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from asyncio.subprocess import Process
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from strop.errors import StropError, Unavailable
from strop.serve.client import EngineClient, Json
from strop.serve.state import EngineState, ModelState

_WORKER = (sys.executable, "-m", "strop.worker.serving")
_POLL_S = 0.05
_PATIENCE_S = 120.0  # torch alone takes seconds to import
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 30.0
_STABLE_S = 60.0  # a process that lived so long did not fail at its start
_GRACE_S = 5.0
_MANY_FAILURES = 4
_LOG_BYTES = 10 * 2**20


@dataclass(frozen=True)
class EngineHealth:
    """State of the process."""

    state: Literal["idle", "starting", "running", "restarting"]
    """Idle: no model was wanted yet."""
    pid: int | None
    restarts: int
    reason: str | None
    """Why it ended last."""


class EngineProcess:
    """Keeps one model process running. For one event loop, in a thread that lives as long as the server."""

    def __init__(
        self, socket: Path, log_file: Path, options: Sequence[str] = (), worker: Sequence[str] = _WORKER
    ) -> None:
        """`options` go to `python -m strop.worker.serving`; its output goes to the end of `log_file`."""
        self.client = EngineClient(socket)
        self._socket = socket
        self._log_file = log_file
        self._command = (*worker, str(socket), "--parent", str(os.getpid()), *options)
        self._models: dict[str, str] = {}  # what is to be loaded: name to source
        self._present: set[str] = set()  # of those, what this process has
        self._process: Process | None = None
        self._needed, self._up = asyncio.Event(), asyncio.Event()
        self._failures = self._restarts = 0
        self._reason: str | None = None
        self._keeper: asyncio.Task[None] | None = None

    @property
    def health(self) -> EngineHealth:
        """State of the process."""
        state: Literal["idle", "starting", "running", "restarting"] = "idle"
        if self._needed.is_set():
            state = "running" if self._up.is_set() else "restarting" if self._restarts else "starting"
        return EngineHealth(state, self._process.pid if self._process else None, self._restarts, self._reason)

    async def start(self) -> None:
        """From now on there is a process whenever a model is wanted."""
        self._keeper = asyncio.create_task(self._keep())

    async def close(self) -> None:
        """End the process, and all that it does."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        await self.client.close()
        if self._process is not None:
            await _end(self._process)
            self._process = None
        self._up.clear()

    async def load(self, name: str, source: str) -> ModelState:
        """Have a model in memory, now and after a crash: see `EngineClient.load`.

        Raises Unavailable where the process does not come up, or dies of it.
        """
        self._needed.set()
        await self._running()
        try:
            state = await self.client.load(name, source)
        except Unavailable as error:
            if not self.client.lost:
                raise
            raise Unavailable(f"{error.message} (while it loaded {name})", retry_after=error.retry_after) from None
        self._models[name] = source
        self._present.add(name)
        return state

    async def unload(self, name: str) -> None:
        """Unload a model; no effect if it is not loaded."""
        self._models.pop(name, None)
        self._present.discard(name)
        if self._up.is_set():
            with suppress(Unavailable):  # it has ended, and holds nothing
                await self.client.unload(name)

    async def state(self) -> EngineState | None:
        """The loaded models; None without a running process."""
        if not self._up.is_set():
            return None
        with suppress(Unavailable):
            return await self.client.state()
        return None

    async def complete(self, path: str, body: Json) -> Json:
        """The answer to a request: see `EngineClient.complete`. Waits for a model that is being loaded again."""
        await self._ready(body["model"])
        return await self.client.complete(path, body)

    async def stream(self, path: str, body: Json) -> AsyncGenerator[Json]:
        """The chunks of an answer: see `EngineClient.stream`. Waits for a model that is being loaded again."""
        await self._ready(body["model"])
        async with aclosing(self.client.stream(path, body)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def _ready(self, model: str) -> None:
        await self._noticed()
        if model in self._models and model not in self._present:
            await self.load(model, self._models[model])

    async def _noticed(self) -> None:
        """A connection that is lost tells of the end of the process a little before the system does."""
        end = time.monotonic() + _GRACE_S
        while self.client.lost and self._up.is_set() and time.monotonic() < end:
            await asyncio.sleep(_POLL_S)

    async def _running(self) -> None:
        """Wait for the process to answer. Unavailable where it fails again and again."""
        await self._noticed()
        end = time.monotonic() + _PATIENCE_S
        while not self._up.is_set():
            if self._failures >= _MANY_FAILURES:
                message = f"the model process keeps failing: {self._reason}; see {self._log_file}"
                raise Unavailable(message, retry_after=30)
            if time.monotonic() > end:
                raise Unavailable(f"the model process does not come up; see {self._log_file}", retry_after=30)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._up.wait(), _POLL_S)

    async def _keep(self) -> None:
        """Start the process, wait for its end, start it again."""
        await self._needed.wait()
        while True:
            began = time.monotonic()
            self._reason = await self._live()
            self._restarts += 1
            self._failures = 0 if time.monotonic() - began > _STABLE_S else self._failures + 1
            await asyncio.sleep(min(_FIRST_PAUSE_S * 2**self._failures, _LONGEST_PAUSE_S))

    async def _live(self) -> str:
        """One life of the process; what ended it."""
        try:
            self._process = await self._spawn()
        except OSError as error:
            return f"it cannot be started: {error}"
        reviving = asyncio.create_task(self._revive())
        try:
            code = await self._process.wait()
        finally:
            reviving.cancel()
            self._up.clear()
            self._present.clear()
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"

    async def _spawn(self) -> Process:
        with suppress(FileNotFoundError):
            if self._log_file.stat().st_size > _LOG_BYTES:
                os.replace(self._log_file, self._log_file.with_suffix(".log.1"))
        log = os.open(self._log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            return await asyncio.create_subprocess_exec(
                *self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
        finally:
            os.close(log)

    async def _revive(self) -> None:
        """Wait for the process to answer, then load the models of its predecessor."""
        while True:
            with suppress(Unavailable):
                await self.client.state()
                break
            await asyncio.sleep(_POLL_S)
        lost = dict(self._models)
        self._up.set()
        for name, source in lost.items():
            try:
                await self.client.load(name, source)
                self._present.add(name)
            except StropError:  # this model may have crashed the process: do not retry forever
                self._models.pop(name, None)


async def _end(process: Process) -> None:
    """Send SIGTERM, then SIGKILL if the process does not exit."""
    with suppress(ProcessLookupError):
        process.terminate()
        try:
            async with asyncio.timeout(_GRACE_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
