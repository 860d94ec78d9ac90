"""Deployments: models under a name, loaded when they are needed and unloaded when they are idle."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum

from strop.errors import InvalidRequest, NotFound, StropError
from strop.jobs.job import JobQueue
from strop.jobs.plan import Served
from strop.serve.client import CHAT
from strop.serve.state import EngineState, ModelState
from strop.services.loading import Loader, ModelEngine
from strop.services.placement import Place, deployable, on_demand
from strop.services.trained import is_trained
from strop.store.datafolder import DataFolder
from strop.store.deployments import DeploymentStore, StoredDeployment
from strop.store.names import checked_name
from strop.types import Json

log = logging.getLogger("strop.server")

_SWEEP_S = 20.0


class LoadState(StrEnum):
    """Where a deployment stands."""

    UNLOADED = "unloaded"
    """Takes no memory; the next request loads it."""
    LOADING = "loading"
    LOADED = "loaded"
    FAILED = "failed"
    """Could not be loaded; `reason` says why. The next request tries again."""


@dataclass(frozen=True)
class Deployment:
    """A model that answers under a name."""

    id: str
    name: str
    """What `model` in a chat request says."""
    source: str
    """Source of the model: catalogue name, hub id, id of a checkpoint, or folder."""
    path: str
    """What the model process loads."""
    created_at: float
    state: LoadState
    reason: str | None
    idle_minutes: float
    """Minutes without a request after which it is unloaded; 0 means never."""
    last_used_at: float | None
    requests: int
    prompt_tokens: int
    completion_tokens: int
    engine: ModelState | None
    """Memory, requests in flight and queue, while it is loaded."""


class Deployments:
    """The deployments of a server. For the event loop that the server runs in."""

    def __init__(
        self,
        jobs: JobQueue,
        folder: DataFolder,
        engine: ModelEngine,
        idle_minutes: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`idle_minutes` is for deployments that say nothing of their own."""
        self._jobs = jobs
        self._folder = folder
        self._engine = engine
        self._idle_minutes = idle_minutes
        self._clock = clock
        self._store = DeploymentStore(jobs.database)
        self._loader = Loader(jobs, folder, engine, self._store, clock)
        self._deploying = asyncio.Lock()

    async def start(self) -> None:
        """Load again what was loaded when the server ended, without waiting for it."""
        self._loader.spawn(self._load_wanted())
        self._loader.spawn(self._sweep())

    async def close(self) -> None:
        """End the work in the background. What is loaded stays wanted."""
        await self._loader.close()

    async def create(
        self, source: str, name: str | None = None, idle_minutes: float | None = None, wait: bool = True
    ) -> Deployment:
        """Deploy a model, by default under the name of its source, and load it.

        Without `wait` it loads while the caller goes on. Raises Conflict for a name in use, and
        NotFound, ModelError or CheckpointError for a source that cannot be loaded: then nothing
        is left of it.
        """
        place = await asyncio.to_thread(deployable, self._jobs, self._folder, source)
        settings = {} if idle_minutes is None else {"idle_minutes": idle_minutes}
        chosen = place.name if name is None else checked_name(name, "a deployment")
        row = await self._create(chosen, place, settings)
        loading = self._loader.begin(row)
        if wait:
            try:
                await asyncio.shield(loading)
            except StropError:
                await self.delete(row.id)
                raise
        return await self.get(row.id)

    async def list(self, after: str | None = None, limit: int = 20) -> Sequence[Deployment]:
        """Newest first; `after` is the id of the last one of the page before. NotFound for that id."""
        rows = await asyncio.to_thread(self._store.list, after, limit)
        state = await self._engine.state()
        return [self._shown(row, state) for row in rows]

    async def get(self, key: str) -> Deployment:
        """By id or name. NotFound when there is none."""
        row = await asyncio.to_thread(self._store.get, key)
        return self._shown(row, await self._engine.state())

    async def load(self, key: str) -> Deployment:
        """Load a deployment now; does nothing where it is loaded."""
        row = await asyncio.to_thread(self._store.get, key)
        await self._loader.ensure(row)
        return await self.get(row.id)

    async def unload(self, key: str) -> Deployment:
        """Free its memory; the next request loads it again. Requests in progress fail."""
        row = await asyncio.to_thread(self._store.get, key)
        await self._loader.unload(row)
        return await self.get(row.id)

    async def delete(self, key: str) -> None:
        """Unload and forget it. The model's files stay."""
        row = await asyncio.to_thread(self._store.get, key)
        await self._loader.unload(row)
        await asyncio.to_thread(self._store.delete, row.id)
        self._loader.forget(row)

    async def resolve(self, model: str) -> Deployment:
        """The loaded deployment that `model` of a request means, deployed now if need be.

        That is a deployment's name or id, a catalogue name, an `ft:` name of a job (its best
        checkpoint, or its newest where none was validated), or `ft:…:ckpt-step-N`. Nothing is
        downloaded. Raises NotFound for what is not on this machine, Unavailable while it cannot
        be loaded.
        """
        row = await self._find(model)
        await self._loader.ensure(row)
        return await self.get(row.id)

    async def chat(self, body: dict[str, Json]) -> dict[str, Json]:
        """Resolve `model` of a chat request, pass the request on, and count what it used.

        `body` and answer are OpenAI's; cancelling this cancels the request.
        """
        row = await self._find(body["model"])
        async with self._used(row) as use:
            try:
                answer = await self._engine.complete(CHAT, await self._addressed(row, body))
            except NotFound:  # lost meanwhile: loaded once more
                self._loader.of(row).loaded = False
                answer = await self._engine.complete(CHAT, await self._addressed(row, body))
            use.see(answer)
            return {**answer, "model": body["model"]}

    async def chat_stream(self, body: dict[str, Json]) -> AsyncGenerator[dict[str, Json]]:
        """As `chat`, in chunks, each with its usage so far. Closing the iterator cancels the request."""
        row = await self._find(body["model"])
        options = {"include_usage": True, "continuous_usage_stats": True}
        body = {**body, "stream": True, "stream_options": options}
        async with self._used(row) as use, aclosing(self._chunks(row, body)) as chunks:
            async for chunk in chunks:
                use.see(chunk)
                if not chunk["choices"]:  # the last one, with the usage
                    await self._count(row, use)
                yield {**chunk, "model": body["model"]}

    async def unload_idle(self) -> None:
        """Unload deployments that were idle longer than their limit."""
        state = await self._engine.state()
        working = {model.name for model in state.models if model.in_flight or model.queued} if state else set()
        for row in await asyncio.to_thread(self._store.wanted):
            live, minutes = self._loader.of(row), self._minutes(row)
            idle = self._clock() - live.used_at
            if live.loaded and minutes and idle > 60 * minutes and not live.busy and row.name not in working:
                log.info("%s: unloaded after %d minutes without a request", row.name, idle / 60)
                await self._loader.unload(row)

    async def served(self) -> Served:
        """What the model process holds, and whether it is at work."""
        state = await self._engine.state()
        if state is None:
            return Served(0, idle=not self._loader.busy)
        working = any(model.in_flight or model.queued for model in state.models)
        return Served(state.memory_bytes if state.models else 0, idle=not working and not self._loader.busy)

    async def make_room(self) -> None:
        """Unload everything, unless a request is under way; the next request for a model loads it again."""
        for row in await asyncio.to_thread(self._store.wanted):
            if not (await self.served()).idle:
                return
            if self._loader.of(row).loaded:
                log.info("%s: unloaded to make room for a task", row.name)
                await self._loader.unload(row)

    async def _find(self, model: str) -> StoredDeployment:
        """The deployment that a request names, made where it can be."""
        row = await asyncio.to_thread(self._store.find, model)
        if row is not None:
            return row
        place = await asyncio.to_thread(on_demand, self._jobs, self._folder, model)
        async with self._deploying:  # the first of several requests deploys
            row = await asyncio.to_thread(self._store.find, place.name)
            return row or await self._create(place.name, place, {})

    async def _create(self, name: str, place: Place, settings: dict[str, Json]) -> StoredDeployment:
        if is_trained(name) and name != place.name:
            raise InvalidRequest(f"{name!r} is how trained models are called; choose another name", param="name")
        return await asyncio.to_thread(self._store.create, name, place.source, place.path, settings)

    @asynccontextmanager
    async def _used(self, row: StoredDeployment) -> AsyncIterator[_Use]:
        """A request in progress. Its usage is counted when it ends or is cancelled."""
        live, use = self._loader.of(row), _Use()
        live.busy += 1
        try:
            yield use
        finally:
            live.busy -= 1
            live.used_at = self._clock()
            if use.begun and not use.counted:
                await self._count(row, use)

    async def _chunks(self, row: StoredDeployment, body: dict[str, Json]) -> AsyncGenerator[dict[str, Json]]:
        """Chunks of the model process; the model is loaded once more where it was lost meanwhile."""
        begun = False
        try:
            async with aclosing(self._engine.stream(CHAT, await self._addressed(row, body))) as chunks:
                async for chunk in chunks:
                    begun = True
                    yield chunk
            return
        except NotFound:
            if begun:
                raise
        self._loader.of(row).loaded = False
        async with aclosing(self._engine.stream(CHAT, await self._addressed(row, body))) as chunks:
            async for chunk in chunks:
                yield chunk

    async def _addressed(self, row: StoredDeployment, body: dict[str, Json]) -> dict[str, Json]:
        """The request as the model process takes it, once the model is in memory."""
        await self._loader.ensure(row)
        template = {**self._loader.of(row).template, **(body.get("chat_template_kwargs") or {})}
        return {**body, "model": row.name, **({"chat_template_kwargs": template} if template else {})}

    async def _count(self, row: StoredDeployment, use: _Use) -> None:
        use.counted = True
        await asyncio.to_thread(self._store.count, row.id, use.prompt_tokens, use.completion_tokens)

    async def _load_wanted(self) -> None:
        for row in await asyncio.to_thread(self._store.wanted):
            with suppress(StropError):  # which is logged, and shows in its state
                await self._loader.ensure(row)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_S)
            with suppress(StropError):
                await self.unload_idle()

    def _minutes(self, row: StoredDeployment) -> float:
        return float(row.settings.get("idle_minutes", self._idle_minutes))

    def _shown(self, row: StoredDeployment, state: EngineState | None) -> Deployment:
        live = self._loader.of(row)
        models = {model.name: model for model in state.models} if state else {}
        loaded = models.get(row.name) if live.loaded else None
        if live.loading is not None or (live.loaded and loaded is None):
            shown = LoadState.LOADING
        elif live.loaded:
            shown = LoadState.LOADED
        else:
            shown = LoadState.FAILED if live.reason else LoadState.UNLOADED
        return Deployment(
            id=row.id,
            name=row.name,
            source=row.source,
            path=row.path,
            created_at=row.created_at,
            state=shown,
            reason=live.reason,
            idle_minutes=self._minutes(row),
            last_used_at=row.last_used_at,
            requests=row.requests,
            prompt_tokens=row.prompt_tokens,
            completion_tokens=row.completion_tokens,
            engine=loaded,
        )


@dataclass
class _Use:
    """What a request takes."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    begun: bool = False
    counted: bool = False

    def see(self, answer: dict[str, Json]) -> None:
        """Take in an answer, or a chunk of one."""
        self.begun = True
        usage = answer["usage"]
        self.prompt_tokens, self.completion_tokens = usage["prompt_tokens"], usage["completion_tokens"]
