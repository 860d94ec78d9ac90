"""Atomic file writes: after a crash a file has its old or its new content, never a part."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

from strop.types import Json


def write_atomic(path: Path, text: str) -> None:
    """Replace a file: temporary name beside it, fsync, rename, fsync of the folder."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with open(temporary, "w", encoding="utf-8", newline="\n") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync_folder(path.parent)


def write_json(path: Path, value: Json) -> None:
    """Replace a JSON file, indented for reading."""
    write_atomic(path, json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False) + "\n")


def json_line(value: Json) -> str:
    """Format one line of a JSONL file. NaN raises ValueError."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n"


def append_line(path: Path, line: str) -> None:
    """Append a line and sync it to disk."""
    with open(path, "a", encoding="utf-8", newline="\n") as file:
        file.write(line)
        file.flush()
        os.fsync(file.fileno())


def read_lines(path: Path, holding: bytes = b"") -> Iterable[dict[str, Json]]:
    """Objects of a JSONL file written by strop, from the lines that contain `holding`.

    A last line truncated by a crash is skipped.
    """
    if not path.exists():
        return
    with open(path, "rb") as file:
        for line in file:
            if line.endswith(b"\n") and holding in line:
                yield json.loads(line)


def sync_folder(folder: Path) -> None:
    """Sync a folder's entries to disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
