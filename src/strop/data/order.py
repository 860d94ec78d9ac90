"""The order in which training uses its rows: seeded, resumable and without hidden state."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from strop.errors import RunError
from strop.types import Json


@dataclass(frozen=True)
class DataOrder:
    """The rows of each training step.

    Every epoch is a new shuffle, a pure function of (seed, epoch, row_count), so the rows of any step can be
    computed at any time. No batch spans two epochs: the last batch of an epoch is smaller if the rows do not divide
    evenly, and every row is used exactly once per epoch.
    """

    row_count: int
    batch_size: int
    seed: int
    fingerprint: str = ""
    """From `rows.fingerprint`; detects on resume that the data file has changed."""

    def __post_init__(self) -> None:
        if self.row_count < 1 or self.batch_size < 1:
            raise ValueError(f"row_count and batch_size must be at least 1, found {self.row_count}, {self.batch_size}")

    @property
    def steps_per_epoch(self) -> int:
        """Steps per epoch."""
        return -(-self.row_count // self.batch_size)

    def batch(self, step: int) -> list[int]:
        """Row indices of a step. Steps start at 1 and continue through all epochs."""
        if step < 1:
            raise ValueError(f"steps are counted from 1, found {step}")
        epoch, place = divmod(step - 1, self.steps_per_epoch)
        start = place * self.batch_size
        return list(_shuffled(self.row_count, self.seed, epoch)[start : start + self.batch_size])

    def state(self, step: int) -> dict[str, int | str]:
        """Position after `step` steps, as plain values that can be written to any file.

        `epoch` is the number of completed epochs, `cursor` the number of rows used in the current one.
        """
        epoch, place = divmod(step, self.steps_per_epoch)
        return {"epoch": epoch, "cursor": place * self.batch_size, **self._identity()}

    def resume_step(self, state: Mapping[str, Json], origin: str = "data order") -> int:
        """Number of completed steps according to a state.

        Raises RunError if the state belongs to other data or settings; the message names the field, the value in
        `origin` and the expected value.
        """
        for name, expected in self._identity().items():
            if state.get(name) != expected:
                raise RunError(
                    f"{origin}: {name} is {state.get(name)!r}, expected {expected!r}; resume with the run's original "
                    "data and settings, or start a new run",
                    param=name,
                )
        epoch = _count(state, "epoch", origin)
        cursor = _count(state, "cursor", origin)
        if cursor >= self.row_count or cursor % self.batch_size:
            raise RunError(
                f"{origin}: cursor is {cursor}, expected a multiple of {self.batch_size} below {self.row_count}; "
                "resume from another checkpoint",
                param="cursor",
            )
        return epoch * self.steps_per_epoch + cursor // self.batch_size

    def _identity(self) -> dict[str, int | str]:
        """Values that must match for a state to be usable."""
        return {
            "seed": self.seed,
            "row_count": self.row_count,
            "batch_size": self.batch_size,
            "fingerprint": self.fingerprint,
        }


def _count(state: Mapping[str, Json], name: str, origin: str) -> int:
    value = state.get(name)
    if not isinstance(value, int) or value < 0:
        raise RunError(
            f"{origin}: {name} is {value!r}, expected a whole number from 0; resume from another checkpoint", param=name
        )
    return value


@lru_cache(maxsize=2)
def _shuffled(row_count: int, seed: int, epoch: int) -> tuple[int, ...]:
    """All row indices, sorted by a hash. Unlike `random.shuffle`, the result is the same in every Python version."""

    def key(index: int) -> bytes:
        return hashlib.blake2b(f"{seed}:{epoch}:{index}".encode(), digest_size=16).digest()

    return tuple(sorted(range(row_count), key=key))
