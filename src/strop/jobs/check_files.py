"""`python -m strop.jobs.check_files FOLDER`: reads the data files that the folder's spec.json names.

Leaves the numbers of rows in result.json, or what is wrong with the files.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from strop.data.rows import load_files
from strop.errors import StropError
from strop.store.files import write_json
from strop.store.taskdir import TaskDir
from strop.types import Json


def main() -> int:
    """Entry point of the process."""
    parser = argparse.ArgumentParser(prog="strop.jobs.check_files", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--token", type=int)
    arguments = parser.parse_args()
    folder = TaskDir(arguments.folder)
    with folder.lock(arguments.token):
        write_json(folder.path / "result.json", check(*folder.spec()["files"]))
    return 0


def check(train: str, validation: str | None = None) -> dict[str, Json]:
    """Numbers of `training` and `validation` rows, or `error`: what is wrong, by line."""
    try:
        training, held_out = load_files(train, validation)
    except StropError as error:
        return {"error": error.message}
    return {"training": len(training), "validation": len(held_out)}


if __name__ == "__main__":
    sys.exit(main())
