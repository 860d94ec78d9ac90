"""A server without HTTP, to be killed: a queue and its runner over a data folder.

    python job_server.py DATA_FOLDER SETTINGS

SETTINGS is JSON: `url` of the database or null, `command` of the trainer or null for the real one,
`dies`: where this process kills itself, with the number of the time: {"launching": 1}, "launched",
"followed" (files were read, what they say is not in the database yet). One command a line on
standard input, each answered by one line: `create`, `want ID pause`, `resume ID`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from job_cases import NoIngester, new_job, supervisor

from strop.jobs.job import JobQueue
from strop.jobs.launcher import LocalLauncher, Process
from strop.jobs.process import TRAIN
from strop.jobs.states import Limits
from strop.store.datafolder import DataFolder
from strop.store.db import open_database

LIMITS = Limits(restarts=50, backoff_s=0.01, longest_backoff_s=0.01, lease_s=1.0, interval_s=0.02)


class Death:
    """Kills this process at a moment that was chosen."""

    def __init__(self, dies: Mapping[str, int]) -> None:
        self._dies = dies
        self._times: Counter[str] = Counter()

    def at(self, moment: str) -> None:
        """This moment has come once more."""
        self._times[moment] += 1
        if self._dies.get(moment) == self._times[moment]:
            os.kill(os.getpid(), signal.SIGKILL)


class Launcher(LocalLauncher):
    """The real one, with moments to die at."""

    def __init__(self, command: list[str], death: Death) -> None:
        super().__init__(command)
        self._death = death

    def launch(self, run_folder: Path, env: Mapping[str, str], token: int) -> Process:
        """Before and after."""
        self._death.at("launching")
        process = super().launch(run_folder, env, token)
        self._death.at("launched")
        return process


class Ingester(NoIngester):
    """None, with a moment to die at."""

    def __init__(self, death: Death) -> None:
        super().__init__()
        self._death = death

    def refresh(self, run_id: str) -> bool:
        """After the files were written, before anything of it is committed."""
        self._death.at("followed")
        return False


def answer(queue: JobQueue, words: list[str]) -> str:
    """Do what a client asks for; the answer stands for what it was told."""
    match words:
        case ["create"]:
            return queue.create(new_job()).id
        case ["want", job_id, ("pause" | "cancel") as wanted]:
            return queue.request(job_id, wanted).status
        case ["resume", job_id]:
            return queue.resume(job_id).status
    raise ValueError(words)


def main(data: Path, settings: dict[str, object]) -> None:
    """Serve until SIGTERM."""
    death = Death(settings.get("dies") or {})  # type: ignore[arg-type]
    folder = DataFolder.open(data)
    with folder.lock():
        database = open_database(settings.get("url"), folder.path)  # type: ignore[arg-type]
        queue = JobQueue(database)
        launcher = Launcher(settings.get("command") or list(TRAIN), death)  # type: ignore[arg-type]
        runner = supervisor(queue, folder, launcher, ingester=Ingester(death), limits=LIMITS)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        runner.start()
        print("ready", flush=True)
        try:
            for line in sys.stdin:
                print(answer(queue, line.split()), flush=True)
        finally:
            runner.close()
            database.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
