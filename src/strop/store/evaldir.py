"""The folder of an evaluation: what it is to do, and what has come of it so far.

    spec.json         see `evals.spec`
    status.json       what it is doing now: state, rows done, rate
    rollouts.jsonl    every answer; those of a row are added together, in one write
    metrics.json      the figures, once all rows are done
    raw_output.log    all output of the process

A row counts once all its answers stand in rollouts.jsonl, without a failure: a process that
goes on with the folder keeps those and does the others.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path

from strop.errors import RunError
from strop.store.files import append_line, json_line, read_lines, write_atomic, write_json
from strop.store.rundir import RunState
from strop.store.taskdir import TaskDir, read_object
from strop.types import Json


class EvaluationDir(TaskDir):
    """One evaluation's folder."""

    in_use = "is being evaluated"

    @classmethod
    def create(cls, path: Path, spec: Mapping[str, Json]) -> EvaluationDir:
        """Make the folder of a new evaluation."""
        path.mkdir(parents=True)
        folder = cls(path)
        write_json(folder.spec_file, spec)
        return folder

    @classmethod
    def open(cls, path: Path) -> EvaluationDir:
        """An existing folder. RunError when it is none."""
        folder = cls(path)
        if not folder.spec_file.is_file():
            raise RunError(f"{path} is no evaluation: it has no spec.json")
        return folder

    @property
    def rollouts_file(self) -> Path:
        return self.path / "rollouts.jsonl"

    @property
    def metrics_file(self) -> Path:
        return self.path / "metrics.json"

    def metrics(self) -> dict[str, Json] | None:
        """The figures; None as long as rows are left."""
        return read_object(self.metrics_file) or None

    def set_status(self, state: RunState, **fields: Json) -> None:
        """Replace the status. Fields that are not given keep their value, but for the message."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        known = {key: value for key, value in self.status().items() if key != "message"}
        write_json(self.status_file, {**known, "state": state, "updated_at": now, **fields})

    def append(self, lines: Iterable[Mapping[str, Json]]) -> None:
        """Add all answers to a row: once this returns, the row counts."""
        append_line(self.rollouts_file, "".join(map(json_line, lines)))

    def write_metrics(self, metrics: Mapping[str, Json]) -> None:
        """Leave the figures: the evaluation is done."""
        write_json(self.metrics_file, metrics)

    def keep_complete(self, rows: Collection[str], samples: int) -> dict[str, list[dict[str, Json]]]:
        """Drop every other line than those of finished rows of this evaluation, and return these by row."""
        kept: dict[str, list[dict[str, Json]]] = {}
        found = 0
        for row, lines in _by_row(read_lines(self.rollouts_file)):
            found += 1
            failed = any(line["failure"] for line in lines)
            if row in rows and row not in kept and len(lines) == samples and not failed:
                kept[row] = lines
        if len(kept) < found or _is_torn(self.rollouts_file):
            write_atomic(self.rollouts_file, "".join(json_line(line) for lines in kept.values() for line in lines))
        return kept


def _by_row(lines: Iterable[dict[str, Json]]) -> Iterator[tuple[str, list[dict[str, Json]]]]:
    for row, found in groupby(lines, key=lambda line: str(line["row"])):
        yield row, list(found)


def _is_torn(file: Path) -> bool:
    """Whether a crash cut the last line off."""
    if not file.exists() or file.stat().st_size == 0:
        return False
    with open(file, "rb") as handle:
        handle.seek(-1, os.SEEK_END)
        return handle.read() != b"\n"
