"""Deployments that threads wait for."""

from __future__ import annotations

import asyncio

import pytest

from strop.api.readiness import Readiness
from strop.errors import ModelError


class Loading:
    """Deployments that are loaded when told to."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.loaded = asyncio.Event()
        self.error: Exception | None = None

    async def load(self, key: str) -> str:
        self.asked.append(key)
        await self.loaded.wait()
        if self.error:
            raise self.error
        return key


async def asked(readiness: Readiness) -> bool:
    """What a thread is told, with time for the loop in between."""
    found = await asyncio.to_thread(readiness, "helper")
    await asyncio.sleep(0.01)
    return found


async def answered(readiness: Readiness) -> None:
    """Ask again and again, as a thread does."""
    while not await asked(readiness):
        pass


def test_a_thread_hears_when_a_deployment_is_loaded_and_never_waits() -> None:
    async def run() -> None:
        deployments = Loading()
        readiness = Readiness(deployments)  # type: ignore[arg-type]
        assert not readiness("helper")
        readiness.open()
        assert [await asked(readiness) for _ in range(3)] == [False] * 3
        deployments.loaded.set()
        await asyncio.sleep(0.01)
        assert await asked(readiness)
        assert deployments.asked == ["helper"]

    asyncio.run(run())


def test_what_keeps_it_from_being_loaded_is_raised_and_the_next_call_tries_again() -> None:
    async def run() -> None:
        deployments = Loading()
        deployments.error = ModelError("damaged")
        deployments.loaded.set()
        readiness = Readiness(deployments)  # type: ignore[arg-type]
        readiness.open()
        with pytest.raises(ModelError, match="damaged"):
            await answered(readiness)
        deployments.error = None
        await answered(readiness)
        assert deployments.asked == ["helper"] * 2

    asyncio.run(run())


def test_nothing_is_asked_for_once_the_loop_ends() -> None:
    async def run() -> Readiness:
        readiness = Readiness(Loading())  # type: ignore[arg-type]
        readiness.open()
        assert not await asked(readiness)
        readiness.close()
        return readiness

    assert not asyncio.run(run())("helper")
