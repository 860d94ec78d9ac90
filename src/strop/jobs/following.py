"""What is new in a run folder: each step once, each checkpoint once, whatever became of the files."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from strop.store.rundir import RunDir
from strop.types import Json


@dataclass(frozen=True)
class News:
    """Steps and checkpoints that no event has reported yet."""

    steps: Sequence[Mapping[str, Json]]
    """Lines of metrics.jsonl."""
    checkpoints: Sequence[Mapping[str, Json]]
    """Entries of checkpoint_status.json."""

    def __bool__(self) -> bool:
        return bool(self.steps or self.checkpoints)


class RunFollower:
    """Reads a run folder that a process is writing. What was read stays new until it is `reported`."""

    def __init__(self, run: RunDir, last_step: int, checkpoints: Iterable[int]) -> None:
        """Steps up to `last_step`, and these checkpoints, are known: a run that resumed may do them again."""
        self._run = run
        self._last_step = last_step
        self._lines = _Lines(run.metrics_file)
        self._steps: list[dict[str, Json]] = []
        self._reported_checkpoints = set(checkpoints)

    def news(self, limit: int = 500) -> News:
        """New items, oldest first, with at most `limit` steps."""
        for line in self._lines.read():
            if line["step"] > max(self._last_step, self._steps[-1]["step"] if self._steps else -1):
                self._steps.append(line)
        listed = self._run.checkpoint_status().get("checkpoints", [])
        unknown = [entry for entry in listed if entry["step"] not in self._reported_checkpoints]
        return News(self._steps[:limit], unknown)

    def reported(self, news: News) -> None:
        """The news were recorded."""
        self._steps = self._steps[len(news.steps) :]
        if news.steps:
            self._last_step = news.steps[-1]["step"]
        self._reported_checkpoints |= {entry["step"] for entry in news.checkpoints}


class _Lines:
    """Complete lines of a growing file, each once; all lines again if the file was replaced."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._inode: int | None = None
        self._offset = 0

    def read(self) -> list[dict[str, Json]]:
        try:
            with open(self._file, "rb") as file:
                info = os.fstat(file.fileno())
                if info.st_ino != self._inode or info.st_size < self._offset:
                    self._inode, self._offset = info.st_ino, 0
                file.seek(self._offset)
                whole, newline, _ = file.read().rpartition(b"\n")
        except FileNotFoundError:
            return []
        try:
            lines = [json.loads(line) for line in whole.split(b"\n") if line]
        except ValueError:
            # Replaced by a longer file with the number of the old one: from the start, the next time.
            self._offset = 0
            return []
        self._offset += len(whole + newline)
        return lines
