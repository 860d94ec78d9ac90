"""From threads to the event loop: having a deployment loaded before something asks for it."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future

from strop.services.deployments import Deployment, Deployments


class Readiness:
    """Asks for deployments on behalf of threads. Does nothing while the loop does not run."""

    def __init__(self, deployments: Deployments) -> None:
        self._deployments = deployments
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loading: dict[str, Future[Deployment]] = {}

    def open(self) -> None:
        """From inside the loop, once the deployments are started."""
        self._loop = asyncio.get_running_loop()

    def close(self) -> None:
        """From inside the loop, before the deployments are closed."""
        self._loop = None
        for future in self._loading.values():
            future.cancel()

    def __call__(self, name: str) -> bool:
        """Whether a deployment answers; it begins to load where it does not. Never waits.

        Raises NotFound for one that is gone, and what kept it from being loaded.
        """
        loop = self._loop
        if loop is None:
            return False
        if name not in self._loading:
            self._loading[name] = asyncio.run_coroutine_threadsafe(self._deployments.load(name), loop)
        if not self._loading[name].done():
            return False
        future = self._loading.pop(name)
        if future.cancelled():
            return False
        future.result()
        return True
