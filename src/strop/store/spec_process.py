"""The process of a short task: does what a folder's spec.json says and leaves the result there."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path

from strop.errors import StropError
from strop.store.files import write_json
from strop.store.taskdir import TaskDir
from strop.types import Json


def run_spec(work: Callable[[Mapping[str, Json]], Mapping[str, Json]], description: str | None) -> int:
    """Entry point for `COMMAND FOLDER --token N`: write what `work` makes of the spec, or its error, to result.json.

    Returns the exit code.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("folder", type=Path, help="folder of the task")
    parser.add_argument("--token", type=int, help="fencing token of the folder; do not work if a newer token exists")
    arguments = parser.parse_args()
    folder = TaskDir(arguments.folder)
    with folder.lock(arguments.token):
        try:
            result = work(folder.spec())
        except StropError as error:
            result = {"error": error.message}
        write_json(folder.path / "result.json", result)
    return 0
