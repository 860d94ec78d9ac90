"""Which waiting tasks start now. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from strop.jobs.task import Task


def next_tasks(waiting: Sequence[Task], running: Sequence[Task], at_once: Mapping[str, int]) -> list[Task]:
    """Waiting tasks in queue order, up to the concurrency limit of each kind.

    Each kind has places of its own, so that a long queue of one keeps no other waiting.
    """
    counts = Counter(task.kind for task in running)
    chosen: list[Task] = []
    for task in waiting:
        if counts[task.kind] < at_once.get(task.kind, 1):
            counts[task.kind] += 1
            chosen.append(task)
    return chosen
