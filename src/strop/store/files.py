"""Writing files so that a crash at any moment leaves the old content or the new, never half."""

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
    """Replace a JSON file, for people to read."""
    write_atomic(path, json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False) + "\n")


def json_line(value: Json) -> str:
    """One line of a JSONL file. Not-a-number has no place in JSON and raises ValueError."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n"


def append_line(path: Path, line: str) -> None:
    """Add a whole line and wait until it is on disk."""
    with open(path, "a", encoding="utf-8", newline="\n") as file:
        file.write(line)
        file.flush()
        os.fsync(file.fileno())


def read_lines(path: Path, holding: bytes = b"") -> Iterable[dict[str, Json]]:
    """Objects of a JSONL file that strop wrote, of the lines with `holding` in them.

    A last line cut off by a crash is left out.
    """
    if not path.exists():
        return
    with open(path, "rb") as file:
        for line in file:
            if line.endswith(b"\n") and holding in line:
                yield json.loads(line)


def sync_folder(folder: Path) -> None:
    """Make renames and new names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
