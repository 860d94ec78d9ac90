"""The kind `training`: `python -m strop.worker train RUN` over a run folder."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterable, Iterator
from contextlib import suppress

import sqlalchemy as sa
from sqlalchemy import Connection

from strop.config import anchored, dump_config
from strop.errors import RunError
from strop.jobs.environment import Environment, trainer_secrets
from strop.jobs.following import RunFollower
from strop.jobs.job import Job, JobQueue
from strop.jobs.kind import Change, Exit, Outcome, Settled, Tools
from strop.jobs.launcher import Launcher, LocalLauncher
from strop.jobs.outcome import classify_exit
from strop.jobs.reports import checkpoint_event, ending_events, step_event
from strop.jobs.task import Task, TaskStatus
from strop.store.db import Database
from strop.store.files import write_atomic
from strop.store.rundir import RunDir, RunState
from strop.store.tables import events, jobs

log = logging.getLogger(__name__)

# A run has no state for a job that was cancelled: `strop resume` can go on with it.
_STATES = {
    TaskStatus.PAUSED: RunState.PAUSED,
    TaskStatus.CANCELLED: RunState.PAUSED,
    TaskStatus.FAILED: RunState.FAILED,
}


class Training:
    """Trains models."""

    def __init__(self, tools: Tools, launcher: Launcher | None = None) -> None:
        self.launcher = launcher or LocalLauncher()
        self._tools = tools
        self._queue = JobQueue(tools.database)

    def open(self, task: Task) -> TrainingHandler:
        """Read what the job is to do."""
        return TrainingHandler(self._tools, self._queue.get(task.id))


class TrainingHandler:
    """One job while it runs."""

    ends_with_server = False
    time_limit_s = None

    def __init__(self, tools: Tools, job: Job) -> None:
        self.job = job
        self.folder = RunDir(tools.folder.found(job.folder))
        self._tools = tools
        self._follower = RunFollower(self.folder, *reported(tools.database, job))
        self._run_id = job.run_id
        self._complaint = ""

    @property
    def prepared(self) -> bool:
        """Whether there is a run folder."""
        return self.folder.config_file.is_file()

    def prepare(self) -> None:
        """Make the run folder, or put out of date what its status says of an earlier attempt."""
        run = self.folder
        if self.prepared:
            if not run.locked():
                run.set_status(RunState.STARTING, phase="queued")
        elif self.job.started_at is not None:
            raise RunError(f"its run folder {run.path} is gone; clone the job to start over")
        else:
            shutil.rmtree(run.path, ignore_errors=True)  # what a kill in the middle of this left
            RunDir.create(run.path, anchored(self.job.config, self._tools.folder.path))

    def environment(self) -> dict[str, str]:
        """The server's variables, with the secrets of the rewards, the trackers and the model hub.

        The job's configuration is written first: it may have been changed, or the data folder moved.
        """
        text = dump_config(anchored(self.job.config, self._tools.folder.path))
        if self.folder.config_file.read_text(encoding="utf-8") != text:
            write_atomic(self.folder.config_file, text)
        variables = Environment(self._tools.secrets)
        logins = trainer_secrets(self.job.config.recorders, variables.stored)
        return variables.with_secrets((*variables.of_rewards(self.job.config.rewards), *logins))

    def follow(self) -> Iterator[Change]:
        """Steps and checkpoints, each as an event; after a checkpoint restarts count from 0 again."""
        if not self.prepared:
            return
        yield from self._ingest()
        while news := self._follower.news():
            total = self.folder.status().get("total_steps")
            new = [step_event(self.job, line, total) for line in news.steps]
            new += [checkpoint_event(self.job, entry) for entry in news.checkpoints]
            yield Change(new, {"restarts": 0, "reason": None} if news.checkpoints else {})
            self._follower.reported(news)

    def conclude(self, ended: Exit) -> Outcome:
        """As the run's status says."""
        return classify_exit(self.folder.status(), ended)

    def finish(self, outcome: Settled) -> Change:
        """Correct the status of a run whose process was killed while running."""
        self._close(outcome)
        return Change(ending_events(self.job, outcome), also=lambda connection: self._record(connection, outcome))

    def _record(self, connection: Connection, outcome: Settled) -> None:
        if outcome.status is TaskStatus.SUCCEEDED:
            named = jobs.update().where(jobs.c.task == self.job.seq).values(fine_tuned_model=self.job.model_name)
            connection.execute(named)

    def _close(self, outcome: Settled) -> None:
        status = self.folder.status() if self.prepared else {}
        state = _STATES.get(outcome.status)
        if state is None or not RunState(status.get("state", state)).active or self.folder.locked():
            return
        message = outcome.reason or f"the job was {outcome.status}"
        with suppress(OSError):  # the disk may be full
            self.folder.set_status(state, message=message, code=outcome.code, param=outcome.param)
            self._take_in()

    def _ingest(self) -> Iterable[Change]:
        known, run_id = self._run_id, self._take_in()
        if run_id != known:
            statement = jobs.update().where(jobs.c.task == self.job.seq).values(run_id=run_id)
            yield Change(also=lambda connection: connection.execute(statement))
            self._run_id = run_id

    def _take_in(self) -> str | None:
        """Charts and rollouts come from the database's copy of the run: that it is late stops no job."""
        run_id, complaint = self._run_id, ""
        try:
            if run_id is None:
                run_id = self._tools.ingester.import_run(self.folder.path)
            else:
                self._tools.ingester.refresh(run_id)
        except Exception as error:
            complaint = str(error)
            if complaint != self._complaint:  # not four times a second
                log.exception("job %s: its run could not be taken in", self.job.id)
        self._complaint = complaint
        return run_id


def reported(database: Database, task: Task) -> tuple[int, frozenset[int]]:
    """What events have reported: the newest step, -1 before the first, and the checkpoints."""
    query = sa.select(events.c.once).where(events.c.task == task.seq, events.c.once.is_not(None))
    with database.read() as connection:
        keys = [once.partition(":") for once in connection.scalars(query)]
    steps = [int(number) for kind, _, number in keys if kind == "step"]
    checkpoints = frozenset(int(number) for kind, _, number in keys if kind == "checkpoint")
    return max(steps, default=-1), checkpoints
