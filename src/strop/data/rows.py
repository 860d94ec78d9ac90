"""Rows of a data file, as training, validation and reward functions use them.

A row has `messages`, or `prompt` for a single user turn, and optionally `tools` and `metadata`. Any other key is
passed to the reward functions. A final assistant turn is the reference answer and never part of the prompt. A null
value is treated as a missing key, because table exports write nulls.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from strop.data.faults import Fault, Refused, describe
from strop.data.jsonl import read_objects
from strop.data.turns import check_turns, parse_turn, raw_turns
from strop.errors import DataError
from strop.types import Json, Message, Row

MAX_SHOWN = 20
"""Maximum number of faults or row pairs that a message lists in full."""


@dataclass(frozen=True)
class DataReport:
    """The contents of a data file, with its faults."""

    path: str
    rows: tuple[Row, ...]
    """The valid rows."""
    faults: tuple[Fault, ...]
    """The first faults, at most MAX_SHOWN."""
    fault_kinds: Mapping[str, int]
    """Number of faults of each kind in the whole file."""

    @property
    def fault_count(self) -> int:
        """Total number of faults."""
        return sum(self.fault_kinds.values())

    @property
    def counts(self) -> dict[str, int]:
        """Number of rows, rows with a reference, rows with tools, duplicate rows, and faults."""
        return {
            "rows": len(self.rows),
            "with_reference": sum(row.reference is not None for row in self.rows),
            "with_tools": sum(bool(row.tools) for row in self.rows),
            "repeated": sum("-" in row.id for row in self.rows),
            "faults": self.fault_count,
        }

    @property
    def coverage(self) -> dict[str, int]:
        """Number of rows with a value for each key; metadata fields are named `metadata.x`."""
        seen: Counter[str] = Counter()
        for row in self.rows:
            metadata = row.fields.get("metadata") or {}
            seen.update(key for key, value in row.fields.items() if value is not None)
            seen.update(f"metadata.{key}" for key, value in metadata.items() if value is not None)
        return dict(seen)

    def explain(self) -> str:
        """Format the faults for display: the first ones in full as `file:line: problem; remedy`, then counts."""
        lines = [f"{self.path}{f':{fault.line}' if fault.line else ''}: {fault}" for fault in self.faults]
        left = Counter(self.fault_kinds) - Counter(fault.kind for fault in self.faults)
        if left:
            kinds = ", ".join(f"{count:,} of {kind!r}" for kind, count in left.most_common())
            lines.append(f"{self.path}: and {left.total():,} more: {kinds}")
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Json]:
        """The report without its rows, as a JSON-serializable dict."""
        return {
            "file": self.path,
            **self.counts,
            "fields": self.coverage,
            "fault_kinds": dict(self.fault_kinds),
            "first_faults": [asdict(fault) for fault in self.faults],
        }


def check_rows(path: str | Path) -> DataReport:
    """Read a data file and report its contents. Faults are reported, never raised."""
    rows: list[Row] = []
    shown: list[Fault] = []
    kinds: Counter[str] = Counter()
    ids: Counter[str] = Counter()
    for result in _read_rows(path):
        if isinstance(result, Row):
            ids[result.id] += 1
            repeat = ids[result.id]
            rows.append(result if repeat == 1 else replace(result, id=f"{result.id}-{repeat}"))
        else:
            kinds.update(fault.kind for fault in result)
            shown += result[: MAX_SHOWN - len(shown)]
    return DataReport(str(path), tuple(rows), tuple(shown), dict(kinds))


def count_rows(path: str | Path, name: str) -> int:
    """Count the rows of a file in constant memory. Raises DataError that lists the faults under `name`."""
    rows = 0
    shown: list[Fault] = []
    kinds: Counter[str] = Counter()
    for result in _read_rows(path):
        if isinstance(result, Row):
            rows += 1
        else:
            kinds.update(fault.kind for fault in result)
            shown += result[: MAX_SHOWN - len(shown)]
    if shown:
        raise DataError(DataReport(name, (), tuple(shown), dict(kinds)).explain(), param="file")
    return rows


def load_rows(path: str | Path) -> list[Row]:
    """Read the rows of a data file. Raises DataError that lists all faults."""
    report = check_rows(path)
    if report.faults:
        raise DataError(report.explain())
    return list(report.rows)


def load_files(train_file: str | Path, validation_file: str | Path | None = None) -> tuple[list[Row], list[Row]]:
    """Read training and validation rows. Raises DataError for any fault, or if a prompt is in both files."""
    train = load_rows(train_file)
    if validation_file is None:
        return train, []
    validation = load_rows(validation_file)
    refuse_overlap(train, validation, train_file, validation_file)
    return train, validation


def _read_rows(path: str | Path) -> Iterator[Row | list[Fault]]:
    """Yield the row or the fault of each line of a file."""
    for line, found in read_objects(path):
        yield [found] if isinstance(found, Fault) else build_row(line, found)


def build_row(line: int, fields: dict[str, Json]) -> Row | list[Fault]:
    """Convert an object to a row, or report all of its faults."""
    faults: list[Fault] = []
    metadata: dict[str, Json] = {}
    tools: tuple[dict[str, Json], ...] = ()
    raw: list[Json] = []
    turns: list[Message] = []
    with _noted(line, faults):
        metadata = _metadata(fields)
    with _noted(line, faults):
        tools = _tools(fields)
    with _noted(line, faults):
        raw = raw_turns(fields)
    for index, turn in enumerate(raw):
        with _noted(line, faults):
            turns.append(parse_turn(index, turn))
    if not faults:
        with _noted(line, faults):
            check_turns(turns)
    if faults:
        return faults
    answered = turns[-1].role == "assistant"
    reference = metadata.get("ground_truth")
    if reference is None and answered:
        # A tool call is an answer too: then the whole turn is the reference, as the file has it.
        reference = raw[-1] if turns[-1].tool_calls else turns[-1].content
    prompt = tuple(turns[:-1] if answered else turns)
    return Row(_digest(fields)[:12], line, prompt, tools, reference, fields)


def refuse_overlap(
    train: Sequence[Row], validation: Sequence[Row], train_file: str | Path, validation_file: str | Path
) -> None:
    """Raise DataError if a prompt is in both files, listing the pairs of lines.

    Prompts (messages and tools) are compared, not whole rows: the same prompt with different metadata would still
    measure performance on training data.
    """
    lines: dict[str, int] = {}
    for row in train:
        lines.setdefault(prompt_digest(row), row.line)
    pairs = [(lines[digest], row.line) for row in validation if (digest := prompt_digest(row)) in lines]
    if not pairs:
        return
    listed = [f"{validation_file}:{second}: same prompt as {train_file}:{first}" for first, second in pairs[:MAX_SHOWN]]
    if len(pairs) > MAX_SHOWN:
        listed.append(f"and {len(pairs) - MAX_SHOWN:,} more")
    problem = f"{len(pairs):,} validation rows are also in the training data; remove them from one of the files"
    raise DataError("\n".join([problem, *listed]))


def fingerprint(rows: Sequence[Row]) -> str:
    """SHA-256 over the content of the rows in order; equal for equal data."""
    digest = hashlib.sha256()
    for row in rows:
        digest.update(_digest(row.fields).encode())
    return digest.hexdigest()


def _digest(value: Json) -> str:
    """SHA-256 of a JSON value, independent of key order."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def prompt_digest(row: Row) -> str:
    """SHA-256 of a row's prompt: messages and tools."""
    return _digest([[asdict(message) for message in row.messages], list(row.tools)])


@contextmanager
def _noted(line: int, faults: list[Fault]) -> Iterator[None]:
    """Collect a fault raised in the body and continue, so that all faults of a row are reported."""
    try:
        yield
    except Refused as refused:
        faults.append(refused.at(line))


def _metadata(fields: Mapping[str, Json]) -> dict[str, Json]:
    metadata = fields.get("metadata")
    if metadata is None:
        return {}
    if not isinstance(metadata, dict):
        raise Refused("metadata", f"metadata is {describe(metadata)}", "make it an object with fields of your own")
    return metadata


def _tools(fields: Mapping[str, Json]) -> tuple[dict[str, Json], ...]:
    tools = fields.get("tools")
    if tools is None:
        return ()
    remedy = 'write tools as a list of {"type": "function", "function": {"name": …, "parameters": …}}'
    if not isinstance(tools, list):
        raise Refused("tools", f"tools is {describe(tools)}", remedy)
    for index, tool in enumerate(tools):
        function = tool.get("function") if isinstance(tool, dict) else None
        name = function.get("name") if isinstance(function, dict) else None
        if not isinstance(name, str) or not name:
            raise Refused("tools", f"tools[{index}] has no function.name", remedy)
    return tuple(tools)
