"""Which deployments are in memory: loaded once for all who wait, and forgotten again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from strop.errors import Conflict, StropError
from strop.jobs.job import JobQueue
from strop.serve.state import EngineState, ModelState
from strop.services.placement import follow, template_of
from strop.store.datafolder import DataFolder
from strop.store.deployments import DeploymentStore, StoredDeployment
from strop.types import Json

log = logging.getLogger("strop.server")


class ModelEngine(Protocol):
    """What answers: `serve.supervisor.EngineProcess`."""

    async def load(self, name: str, source: str) -> ModelState:
        """Have a model in memory."""

    async def unload(self, name: str) -> None:
        """Forget it."""

    async def state(self) -> EngineState | None:
        """What is in memory; None while nothing answers."""

    async def complete(self, path: str, body: dict[str, Json]) -> dict[str, Json]:
        """The answer to a request."""

    def stream(self, path: str, body: dict[str, Json]) -> AsyncGenerator[dict[str, Json]]:
        """The chunks of a streamed answer."""


@dataclass
class Live:
    """What is known of a deployment while the server runs."""

    used_at: float
    """Monotonic time in seconds."""
    loaded: bool = False
    loading: asyncio.Task[None] | None = None
    reason: str | None = None
    """Why it could not be loaded."""
    busy: int = 0
    """Requests under way."""
    template: Mapping[str, Json] = field(default_factory=dict)
    """Options of the chat template where a request says nothing else."""


class Loader:
    """Brings deployments into memory and out of it. For one event loop."""

    def __init__(
        self,
        jobs: JobQueue,
        folder: DataFolder,
        engine: ModelEngine,
        store: DeploymentStore,
        clock: Callable[[], float],
    ) -> None:
        self._jobs = jobs
        self._folder = folder
        self._engine = engine
        self._store = store
        self._clock = clock
        self._live: dict[str, Live] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def of(self, row: StoredDeployment) -> Live:
        """What is known of a deployment."""
        return self._live.setdefault(row.id, Live(self._clock()))

    @property
    def busy(self) -> bool:
        """Whether a request is under way, or anything is being loaded."""
        return any(live.busy or live.loading is not None for live in self._live.values())

    def forget(self, row: StoredDeployment) -> None:
        """It was deleted."""
        self._live.pop(row.id, None)

    async def ensure(self, row: StoredDeployment) -> None:
        """Load it into memory. A cancelled caller does not stop the load for others."""
        if not self.of(row).loaded:
            await asyncio.shield(self.begin(row))

    def begin(self, row: StoredDeployment) -> asyncio.Task[None]:
        """Load it, or find it being loaded."""
        live = self.of(row)
        if live.loading is None:
            live.loading = self.spawn(self._load(row))
        return live.loading

    async def unload(self, row: StoredDeployment) -> None:
        """Take it out of memory, after what loads it now has ended."""
        live = self.of(row)
        if live.loading is not None:
            await asyncio.gather(asyncio.shield(live.loading), return_exceptions=True)
        live.loaded, live.reason = False, None
        await asyncio.to_thread(self._store.want, row.id, False)
        await self._engine.unload(row.name)

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do something in the background, until `close`."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._settle)
        return task

    async def close(self) -> None:
        """End the work in the background."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _load(self, row: StoredDeployment) -> None:
        live = self.of(row)
        try:
            place = await asyncio.to_thread(follow, self._jobs, self._folder, row)
            await self._bring(row.name, place.loadable(self._folder))
            place = await asyncio.to_thread(place.settled, self._folder)
            live.template = await asyncio.to_thread(template_of, place, self._folder)
            await asyncio.to_thread(self._store.place, row.id, place.source, place.path)
            await asyncio.to_thread(self._store.want, row.id, True)
            live.loaded, live.reason, live.used_at = True, None, self._clock()
        except StropError as error:
            live.reason = error.message
            log.warning("%s cannot be loaded: %s", row.name, error.message)
            raise
        finally:
            live.loading = None

    async def _bring(self, name: str, source: str) -> None:
        try:
            await self._engine.load(name, source)
        except Conflict:  # an older checkpoint under that name
            await self._engine.unload(name)
            await self._engine.load(name, source)

    def _settle(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) and not isinstance(error, StropError):
            log.error("a deployment failed", exc_info=error)
