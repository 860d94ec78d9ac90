"""The kind `validation`: checks the data files of a job in a process of its own.

A file may be large, and reading it must neither hold up the server nor take its memory. The checks
are those of training, but for what needs the model's tokenizer. The job waits for it in the status
`validating_files`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

import sqlalchemy as sa
from sqlalchemy import Connection

from strop.config import anchored
from strop.errors import DataError, StropError
from strop.jobs.job import Job, JobQueue
from strop.jobs.kind import Change, Settled, Tools
from strop.jobs.launcher import Launcher, LocalLauncher
from strop.jobs.short import SpecHandler
from strop.jobs.task import Task, TaskStatus
from strop.store.files import write_json
from strop.store.tables import tasks
from strop.types import Json

CHECK = (sys.executable, "-m", "strop.jobs.check_files")
"""Without torch: `strop.worker` would load it."""
LIMIT_S = 1800.0
"""A file that takes longer to read is no file: a pipe, say."""


class Checking:
    """Checks data files of jobs."""

    def __init__(self, tools: Tools, launcher: Launcher | None = None) -> None:
        self.launcher = launcher or LocalLauncher(CHECK)
        self._tools = tools
        self._queue = JobQueue(tools.database)

    def open(self, task: Task) -> CheckHandler:
        """Read whose files are to be checked."""
        with self._tools.database.read() as connection:
            job_id = connection.scalar(sa.select(tasks.c.id).where(tasks.c.seq == task.parent))
        return CheckHandler(self._tools, self._queue, self._queue.get(str(job_id)), task)


class CheckHandler(SpecHandler):
    """One check while it runs."""

    def __init__(self, tools: Tools, queue: JobQueue, job: Job, task: Task) -> None:
        super().__init__(tools, task, LIMIT_S)
        self._queue = queue
        self._job = job

    def prepare(self) -> None:
        """Write down which files to check. ConfigError for a job whose configuration cannot be read."""
        data = anchored(self._job.config, self._tools.folder.path).data
        self.folder.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_json(self.folder.spec_file, {"files": [data.train, *([data.validation] if data.validation else [])]})

    def finish(self, outcome: Settled) -> Change:
        """Let the job go on, with the numbers of `training` and `validation` rows or with the failure."""
        if outcome.status is TaskStatus.CANCELLED:
            return Change()
        found: Mapping[str, Json] | StropError = self.result()
        if outcome.status is TaskStatus.FAILED:
            found = DataError(self._reason(outcome), param=outcome.param)
            if outcome.code not in (None, "timeout"):
                found.code = str(outcome.code)

        def go_on(connection: Connection) -> None:
            self._queue.files_checked(connection, self._job.seq, found)

        return Change(also=go_on)

    def _reason(self, outcome: Settled) -> str:
        if "error" in self.result() or outcome.code not in (None, "timeout"):
            return outcome.reason or ""
        return f"the data files could not be read: {outcome.reason}; are they too large?"
