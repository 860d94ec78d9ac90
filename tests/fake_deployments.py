"""Deployments without a model process: what the API shows of them, and answers of a given text."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

from answers import chunks_of
from strop.errors import Conflict, NotFound
from strop.serve.bodies import ChatBody
from strop.serve.generate import Delta, Done, Finished, Started
from strop.serve.state import ModelState
from strop.services.deployments import Deployment, LoadState


class FakeDeployments:
    """Keeps deployments in memory; sources called `broken` cannot be loaded."""

    def __init__(self) -> None:
        self._known: dict[str, Deployment] = {}
        self.created: list[tuple[Any, ...]] = []

    async def create(
        self, source: str, name: str | None = None, idle_minutes: float | None = None, wait: bool = True
    ) -> Deployment:
        name = name or source
        self.created.append((source, name, idle_minutes, wait))
        if any(known.name == name for known in self._known.values()):
            raise Conflict(f"there is a deployment {name} already")
        number = len(self._known) + 1
        engine = ModelState(name, source, None, 1000, 10, 2, 3, 8192) if wait else None
        made = Deployment(
            id=f"dep_{number}",
            name=name,
            source=source,
            path=f"/models/{source}",
            created_at=1_000.0 + number,
            state=LoadState.LOADED if wait else LoadState.LOADING,
            reason=None,
            idle_minutes=30.0 if idle_minutes is None else idle_minutes,
            last_used_at=None,
            requests=4,
            prompt_tokens=40,
            completion_tokens=400,
            engine=engine,
        )
        self._known[made.id] = made
        return made

    async def list(self, after: str | None = None, limit: int = 20) -> list[Deployment]:
        newest = list(self._known.values())[::-1]
        if after is not None:
            newest = newest[[known.id for known in newest].index((await self.get(after)).id) + 1 :]
        return newest[:limit]

    async def get(self, key: str) -> Deployment:
        for known in self._known.values():
            if key in (known.id, known.name):
                return known
        raise NotFound(f"no deployment {key!r}")

    async def load(self, key: str) -> Deployment:
        return await self._become(key, LoadState.LOADED)

    async def unload(self, key: str) -> Deployment:
        return await self._become(key, LoadState.UNLOADED)

    async def delete(self, key: str) -> None:
        del self._known[(await self.get(key)).id]

    async def chat_stream(self, body: dict[str, Any]) -> AsyncGenerator[dict[str, Any]]:
        request = ChatBody.model_validate(body).request()
        for chunk in chunks_of(
            request, (Started((1,)), Delta(0, "hello", drawn=1), Finished(0, "stop", 1), Done(1, 1))
        ):
            yield chunk

    async def _become(self, key: str, state: LoadState) -> Deployment:
        known = replace(await self.get(key), state=state)
        if state is LoadState.UNLOADED:
            known = replace(known, engine=None)
        self._known[known.id] = known
        return known
