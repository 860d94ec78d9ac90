"""The folder of an evaluation: its specification and its results so far.

    spec.json         see `evals.spec`
    status.json       what it is doing now: state, rows done, rate
    rollouts.jsonl    all rollouts; those of a row are appended in one write
    metrics.json      the results, once all rows are done
    raw_output.log    all output of the process

A row is done once all of its rollouts are in rollouts.jsonl without a failure. A process that resumes the evaluation
keeps those rows and repeats the others.
"""

from __future__ import annotations

import json
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
        """Create the folder of a new evaluation."""
        path.mkdir(parents=True)
        folder = cls(path)
        write_json(folder.spec_file, spec)
        return folder

    @classmethod
    def open(cls, path: Path) -> EvaluationDir:
        """Open an existing folder. Raises RunError if it is not one."""
        folder = cls(path)
        if not folder.spec_file.is_file():
            raise RunError(f"{path} is not an evaluation folder: it has no spec.json")
        return folder

    @property
    def rollouts_file(self) -> Path:
        return self.path / "rollouts.jsonl"

    @property
    def metrics_file(self) -> Path:
        return self.path / "metrics.json"

    def metrics(self) -> dict[str, Json] | None:
        """The results; None while rows are left."""
        return read_object(self.metrics_file) or None

    def set_status(self, state: RunState, **fields: Json) -> None:
        """Replace the status. Fields that are not given keep their value, but for the message."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        known = {key: value for key, value in self.status().items() if key != "message"}
        write_json(self.status_file, {**known, "state": state, "updated_at": now, **fields})

    def append(self, lines: Iterable[Mapping[str, Json]]) -> None:
        """Append all rollouts of a row durably."""
        append_line(self.rollouts_file, "".join(map(json_line, lines)))

    def write_metrics(self, metrics: Mapping[str, Json]) -> None:
        """Write the results: the evaluation is done."""
        write_json(self.metrics_file, metrics)

    def keep_complete(self, rows: Collection[str], samples: int) -> dict[str, list[dict[str, Json]]]:
        """Remove all lines except those of finished rows, and return these by row."""
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

    def row_lines(self, row: str) -> list[dict[str, Json]]:
        """Return the rollouts of a row as they were written; none if the file or the row does not exist."""
        name = json.dumps(row, ensure_ascii=False).encode()  # most lines belong to other rows and need no parsing
        return [line for line in read_lines(self.rollouts_file, holding=name) if line["row"] == row]


def _by_row(lines: Iterable[dict[str, Json]]) -> Iterator[tuple[str, list[dict[str, Json]]]]:
    for row, found in groupby(lines, key=lambda line: str(line["row"])):
        yield row, list(found)


def _is_torn(file: Path) -> bool:
    """Whether the last line was truncated by a crash."""
    if not file.exists() or file.stat().st_size == 0:
        return False
    with open(file, "rb") as handle:
        handle.seek(-1, os.SEEK_END)
        return handle.read() != b"\n"
