"""What the generators of sample data share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from strop.types import Json

Fields = dict[str, Json]
"""A row as a data file has it."""


@dataclass(frozen=True)
class Splits:
    """Rows to train on, and held-out ones whose prompts do not occur among them."""

    train: tuple[Fields, ...]
    validation: tuple[Fields, ...]


def question(text: str, truth: Json, **metadata: Json) -> Fields:
    """A row of one user turn with its reference answer."""
    return {"messages": [{"role": "user", "content": text}], "metadata": {"ground_truth": truth, **metadata}}


def distinct(make: Callable[[], Fields], count: int) -> tuple[Fields, ...]:
    """The first `count` rows that `make` gives and whose prompts all differ."""
    made: dict[str, Fields] = {}
    while len(made) < count:
        row = make()
        made.setdefault(row["messages"][-1]["content"], row)
    return tuple(made.values())
