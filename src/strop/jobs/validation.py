"""Checking the data files of a job, in a process of its own.

A file may be large, and reading it must neither hold up the runner nor take the server's memory.
The checks are those of training, but for what needs the model's tokenizer.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from typing import Protocol

from strop.config import DataConfig
from strop.data.rows import load_files
from strop.errors import DataError, StropError
from strop.types import Json

LIMIT_S = 1800.0
"""A file that takes longer to read is no file: a pipe, say."""


class Check(Protocol):
    """A check of the files of a job that is under way."""

    def result(self) -> Mapping[str, Json] | None:
        """None while it goes on; then, once, what was found. DataError for faults."""

    def close(self) -> None:
        """End it, if that was not its result already."""


class Validation:
    """A `Check` in a process of its own."""

    def __init__(self, data: DataConfig, env: Mapping[str, str]) -> None:
        """Start it. OSError where no process can be started."""
        files = [data.train, *([data.validation] if data.validation else [])]
        with tempfile.TemporaryFile() as output:  # a pipe would hold up a process with much to say
            self._process = subprocess.Popen(
                [sys.executable, "-m", "strop.jobs.validation", *files],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            self._output = os.dup(output.fileno())
        self._deadline = time.monotonic() + LIMIT_S

    def result(self) -> dict[str, Json] | None:
        """None while it goes on; then, once, the numbers of `training` and `validation` rows.

        Raises DataError, listing what is wrong by line.
        """
        code = self._process.poll()
        if code is None:
            if time.monotonic() < self._deadline:
                return None
            self.close()
            raise DataError(f"the data files could not be read within {LIMIT_S / 60:.0f} minutes")
        text = os.pread(self._output, os.fstat(self._output).st_size, 0).decode("utf-8", "replace")
        self.close()
        if code:
            reason = text.strip() or f"the process that reads them ended with status {code}; are they too large?"
            raise DataError(reason)
        counts: dict[str, Json] = json.loads(text)
        return counts

    def close(self) -> None:
        """End the process, if that was not its result already."""
        self._process.kill()
        self._process.wait()
        os.close(self._output)


def main() -> int:
    """Entry point of the child: counts as JSON and 0, or what is wrong and 1."""
    try:
        train, validation = load_files(*sys.argv[1:])
    except StropError as error:
        print(error.message)
        return 1
    print(json.dumps({"training": len(train), "validation": len(validation)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
