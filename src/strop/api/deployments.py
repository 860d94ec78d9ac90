"""Deployments: models under a name, loaded when they are needed and forgotten when they are not."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from strop.serve.wire import ChatRequest, Event, ModelState
from strop.store.datafolder import DataFolder
from strop.store.db import Database


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
    """What it was made of: catalogue name, hub id, `ft:` name, id of a checkpoint or run, folder."""
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

    def __init__(self, database: Database, folder: DataFolder, engine: Any, idle_minutes: float = 30.0) -> None:
        """`idle_minutes` is for deployments that say nothing of their own."""
        raise NotImplementedError

    async def start(self) -> None:
        """Load again what was loaded when the server ended, without waiting for it."""
        raise NotImplementedError

    async def close(self) -> None:
        """End the work in the background. What is loaded stays wanted."""
        raise NotImplementedError

    async def create(
        self, source: str, name: str | None = None, idle_minutes: float | None = None, wait: bool = True
    ) -> Deployment:
        """Deploy a model, by default under the name of its source, and load it.

        Without `wait` it loads while the caller goes on. Raises Conflict for a name in use, and
        NotFound, ModelError or CheckpointError for a source that cannot be loaded: then nothing
        is left of it.
        """
        raise NotImplementedError

    async def list(self, after: str | None = None, limit: int = 20) -> list[Deployment]:
        """Newest first; `after` is the id of the last one of the page before. NotFound for that id."""
        raise NotImplementedError

    async def get(self, key: str) -> Deployment:
        """By id or name. NotFound when there is none."""
        raise NotImplementedError

    async def load(self, key: str) -> Deployment:
        """Load a deployment now; does nothing where it is loaded."""
        raise NotImplementedError

    async def unload(self, key: str) -> Deployment:
        """Free its memory; the next request loads it again. What it was answering fails."""
        raise NotImplementedError

    async def delete(self, key: str) -> None:
        """Unload and forget it. The model's files stay."""
        raise NotImplementedError

    async def resolve(self, model: str) -> Deployment:
        """The loaded deployment that `model` of a request means, deployed now if need be.

        That is a deployment's name, a catalogue name, an `ft:` name of a job (its best checkpoint,
        or its newest where none was validated), or `ft:…:ckpt-step-N`. Nothing is downloaded.
        Raises NotFound for what is not on this machine, Unavailable while it cannot be loaded.
        """
        raise NotImplementedError

    async def generate(self, request: ChatRequest) -> AsyncGenerator[Event]:
        """Resolve `request.model`, answer the request, and count what it used.

        As `EngineClient.generate`: pieces as they come, `Done` last; closing the iterator cancels.
        """
        raise NotImplementedError
        yield
