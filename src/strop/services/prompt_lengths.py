"""Lengths of the prompts of a data file, counted by a process that knows the model's tokenizer."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from strop.errors import ModelError, NotFound, Unavailable
from strop.types import Json

_SECONDS = 300.0
_PATIENCE_S = 60.0
_AT_WORK = threading.Lock()


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


def prompt_lengths(data: Path, model: Path, template: Mapping[str, Json]) -> PromptLengths:
    """Count the tokens of every prompt for the model in a folder; remembered for a file that does not change.

    Raises ModelError where it has no tokenizer or no chat template, Unavailable where it takes too long.
    """
    if not _AT_WORK.acquire(timeout=_PATIENCE_S):
        raise Unavailable("the prompts of another file are being counted; try again in a moment", retry_after=10)
    try:
        changed = data.stat().st_mtime_ns
        return _counted(str(model), str(data), changed, json.dumps(template, sort_keys=True))
    except FileNotFoundError:
        raise NotFound("the file of this data set is gone; upload it again, and delete this one") from None
    finally:
        _AT_WORK.release()


@functools.lru_cache(maxsize=32)
def _counted(model: str, data: str, changed: int, template: str) -> PromptLengths:
    command = [sys.executable, "-m", "strop.worker.lengths", model, data, "--template", template]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"the prompts were not counted within {_SECONDS:g} s", retry_after=60) from None
    if done.returncode != 0:
        reason = done.stderr.strip().rpartition("\n")[2] or f"exit code {done.returncode}"
        raise ModelError(f"the prompts cannot be counted: {reason}", param="model")
    found = json.loads(done.stdout)
    return PromptLengths(tuple(sorted(found["lengths"])), found["refused"], tuple(found["faults"]))
