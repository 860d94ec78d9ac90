"""Which waiting tasks start now, and whether the model process should make room for one. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from strop.jobs.task import Task


@dataclass(frozen=True)
class Demand:
    """What a task needs of the device."""

    memory_bytes: int = 0
    """0 for a task that loads no model, or one of unknown size."""
    served: bool = False
    """The task asks the model process, whose models must stay loaded while it runs."""

    @property
    def of_device(self) -> bool:
        """Whether the task needs the device at all."""
        return self.served or self.memory_bytes > 0


@dataclass(frozen=True)
class Served:
    """What the model process holds."""

    memory_bytes: int = 0
    idle: bool = True
    """No request is in flight, and nothing is being loaded."""


class Device(Protocol):
    """The device that tasks and the model process share. No method waits for the model process."""

    @property
    def memory_bytes(self) -> int:
        """All of its memory."""

    def demand(self, task: Task) -> Demand:
        """What a task needs of it."""

    def served(self) -> Served | None:
        """What the model process holds; None as long as that is not known."""

    def make_room(self) -> None:
        """Have the model process unload its models if they are idle; it begins at once."""


@dataclass(frozen=True)
class Plan:
    """What to do now."""

    start: Sequence[Task] = ()
    blocked: Task | None = None
    """The oldest task that waits for memory."""
    free_bytes: int = 0
    """Memory that is left for it."""
    make_room: bool = False
    """Whether it can start once the model process has unloaded its models."""


def make_plan(
    waiting: Sequence[tuple[Task, Demand]],
    running: Sequence[tuple[Task, Demand]],
    at_once: Mapping[str, int],
    memory_bytes: int,
    served: Served,
) -> Plan:
    """Plan the waiting tasks, which are in the order of the queue.

    Each kind has slots of its own, so that a long queue of one keeps no other waiting. A task
    that needs memory starts if it fits beside the others, or if it is alone on the device: an
    estimate may err. Behind a task that waits for memory nothing newer that needs the device
    starts.
    """
    counts = Counter(task.kind for task, _ in running)
    used = sum(demand.memory_bytes for _, demand in running)
    asked = any(demand.served for _, demand in running)
    start: list[Task] = []
    blocked: Task | None = None
    free, make_room = memory_bytes - used - served.memory_bytes, False
    for task, demand in waiting:
        if counts[task.kind] >= at_once.get(task.kind, 1) or (blocked and demand.of_device):
            continue
        alone = not used and not served.memory_bytes
        if demand.memory_bytes and demand.memory_bytes > free and not alone:
            blocked = task
            fits_then = not used or demand.memory_bytes <= free + served.memory_bytes
            make_room = bool(served.memory_bytes) and served.idle and not asked and fits_then
            continue
        counts[task.kind] += 1
        used, free = used + demand.memory_bytes, free - demand.memory_bytes
        asked = asked or demand.served
        start.append(task)
    return Plan(start, blocked, max(memory_bytes - used - served.memory_bytes, 0), make_room)
