"""The device that tasks and deployments share, as the supervisor of tasks asks about it."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import Future
from functools import cached_property
from pathlib import Path

from strop.config import RunConfig, anchored
from strop.jobs.plan import Demand, Served
from strop.jobs.task import Task
from strop.policy.memory import serving_bytes, training_memory
from strop.policy.weights import shape_in
from strop.services.container import Services
from strop.services.drafts.start_models import GB, Room, described, folder_of, this_machine

_FRESH_S = 2.0
"""After so long, what the model process held has to be asked again."""


class SharedDevice:
    """The largest device of this machine. For the supervisor's thread, but for `open` and `close`."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._loop: asyncio.AbstractEventLoop | None = None
        self._asked_at = 0.0
        self._served: Future[Served] | None = None
        self._room: Future[None] | None = None

    def open(self) -> None:
        """From inside the loop, once the deployments are started."""
        self._loop = asyncio.get_running_loop()

    def close(self) -> None:
        """From inside the loop, before the deployments are closed."""
        self._loop = None
        for future in (self._served, self._room):
            if future is not None:
                future.cancel()

    @cached_property
    def _machine(self) -> Room:
        return this_machine()

    @property
    def memory_bytes(self) -> int:
        """All of its memory."""
        return int(self._machine.gb * GB)

    def demand(self, task: Task) -> Demand:
        """By the estimate for the task's model; nothing for tasks that load none, or one of unknown size."""
        if task.kind == "training":
            config = anchored(self._services.jobs.get(task.id).config, self._services.folder.path)
            return Demand(_training_bytes(self._services, config))
        if task.kind == "evaluation":
            model = self._services.evaluations.get(task.id).spec["model"]
            if model["kind"] == "deployment":
                return Demand(served=True)
            if model["kind"] != "remote":
                return Demand(self._evaluation_bytes(task, model["source"]))
        return Demand()

    def served(self) -> Served | None:
        """What the model process holds; None as long as it has not answered, or the server begins or ends."""
        loop = self._loop
        if loop is None or (self._room is not None and not self._room.done()):
            return None
        known, self._served = self._served, None
        if known is not None and not known.done():
            self._served = known
            return None
        fresh = time.monotonic() - self._asked_at < _FRESH_S
        if known is not None and fresh and not known.cancelled() and known.exception() is None:
            return known.result()
        self._asked_at = time.monotonic()
        self._served = asyncio.run_coroutine_threadsafe(self._services.deployments.served(), loop)
        return None

    def make_room(self) -> None:
        """Have the deployments unloaded, unless one is at work."""
        loop = self._loop
        if loop is not None and (self._room is None or self._room.done()):
            self._room = asyncio.run_coroutine_threadsafe(self._services.deployments.make_room(), loop)

    def _evaluation_bytes(self, task: Task, source: str) -> int:
        """`source` is relative to the evaluation's folder where it is a path within the data folder."""
        evaluation = self._services.folder.found(self._services.evaluations.get(task.id).folder)
        place = Path(evaluation, source)
        name = str(place.resolve()) if place.is_dir() else source
        parameters = described.blocking(self._services, name).parameters
        return int(serving_bytes((parameters or 0) * GB))


def _training_bytes(services: Services, config: RunConfig) -> int:
    choice = described.blocking(services, config.model)
    weights = choice.memory_gb(config.train.method)
    if weights is None:
        return 0
    folder = folder_of(services, config.model)
    shape = shape_in(folder) if folder else None
    if shape is None:
        return int(weights * GB)
    return int(
        training_memory(
            weights * GB,
            shape,
            concurrent=min(config.sampling.max_concurrent, config.train.batch_size * config.train.samples_per_prompt),
            tokens_each=config.sampling.max_prompt_tokens + config.sampling.max_completion_tokens,
            forward_tokens=config.train.micro_batch_tokens,
            recompute=config.train.gradient_checkpointing,
        ).total
    )
