"""Starting the process of a task. What a command and a server have in common."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from strop.store.taskdir import TaskDir

TRAIN = (sys.executable, "-m", "strop.worker", "train")
"""The command that trains a run, but for the run."""


def start_worker(
    folder: Path,
    *,
    parent: int | None = None,
    token: int | None = None,
    env: Mapping[str, str] | None = None,
    command: Sequence[str] = TRAIN,
) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own, over a folder; its output goes to raw_output.log there.

    With `parent` it ends when that process does, however that happens. With `token` it is a
    server's: it outlives the server, and works only while no newer token was given out.
    """
    options = [*(["--parent", str(parent)] if parent else []), *(["--token", str(token)] if token else [])]
    with open(TaskDir(folder).raw_output, "ab") as output:
        return subprocess.Popen(
            [*command, str(folder), *options],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C reaches the command or the server only
        )
