"""Lengths of the prompts of a data file, counted by a process that knows the model's tokenizer."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from strop.errors import NotFound
from strop.jobs.short import LengthsQueue
from strop.types import Json


@dataclass(frozen=True)
class PromptLengths:
    """What the tokenizer and the chat template of a model make of the prompts of a file."""

    lengths: tuple[int, ...]
    """Tokens of each prompt, the shortest first."""
    refused: int
    """Prompts that the chat template refuses: a job over this file would stop."""
    faults: tuple[Mapping[str, Any], ...]
    """The first of them, each with `line` and `message`."""

    def over(self, limit: int) -> int:
        """How many prompts have more than `limit` tokens: training drops those."""
        return sum(length > limit for length in self.lengths)

    def quantile(self, share: float) -> int | None:
        """The length that this share of the prompts does not exceed."""
        return self.lengths[round(share * (len(self.lengths) - 1))] if self.lengths else None


def prompt_lengths(queue: LengthsQueue, data: Path, model: Path, template: Mapping[str, Json]) -> PromptLengths:
    """Count the tokens of every prompt for the model in a folder; remembered for a file that does not change.

    Blocks the calling thread. Raises ModelError where it has no tokenizer or no chat template, Unavailable where it
    takes too long.
    """
    try:
        changed = data.stat().st_mtime_ns
    except FileNotFoundError:
        raise NotFound("the file of this data set is gone; upload it again, and delete this one") from None
    return _counted(queue, str(model), str(data), changed, json.dumps(template, sort_keys=True))


@functools.lru_cache(maxsize=32)
def _counted(queue: LengthsQueue, model: str, data: str, changed: int, template: str) -> PromptLengths:
    found = queue.run({"model": model, "data": data, "template": json.loads(template)})
    return PromptLengths(tuple(sorted(found["lengths"])), found["refused"], tuple(found["faults"]))
