"""Runs the jobs of a queue, in one thread of the server.

Each round looks at all open jobs: files are checked, jobs whose turn it is are begun, those that
nobody holds any more are taken over, and each that is held gets a tick. The training processes
outlive the runner; one that starts anew finds them again.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from strop.config import DataConfig, anchored
from strop.errors import StropError
from strop.jobs.job import Job, NewEvent
from strop.jobs.launcher import Launcher
from strop.jobs.leases import LeaseLost, Leases, WishChanged
from strop.jobs.queue import JobQueue
from strop.jobs.states import JobStatus
from strop.jobs.tools import Limits, RunIngester, Secrets, Tools
from strop.jobs.validation import Check, Validation
from strop.jobs.work import Work
from strop.store.datafolder import DataFolder

log = logging.getLogger(__name__)

_DEFAULT_LIMITS = Limits()


@dataclass(frozen=True)
class _Sighting:
    """A lease of somebody else's, and since when nothing about it has changed."""

    token: int
    expires_at: float | None
    since: float


class Runner:
    """Runs up to `concurrency` jobs at a time."""

    def __init__(
        self,
        queue: JobQueue,
        ingester: RunIngester,
        launcher: Launcher,
        secrets: Secrets,
        folder: DataFolder,
        concurrency: int = 1,
        limits: Limits = _DEFAULT_LIMITS,
        owner: str | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        on_finished: Callable[[Job], object] = lambda job: None,
        check: Callable[[DataConfig, Mapping[str, str]], Check] = Validation,
    ) -> None:
        """`owner` stands for who holds the data folder's lock, so there is one at a time: what it
        held before it was started anew, it takes back at once. By default host and folder.
        `on_finished` hears of each job that ends while it runs."""
        leases = Leases(queue, owner or f"{socket.gethostname()}:{folder.path}", limits.lease_s)
        self._tools = Tools(leases, launcher, ingester, secrets, folder, limits, monotonic)
        self._concurrency = concurrency
        self._on_finished = on_finished
        self._begin_check = check
        self._works: dict[str, Work] = {}
        self._checks: dict[str, tuple[Job, Check]] = {}
        self._sightings: dict[str, _Sighting] = {}
        self._complaints: dict[str, str] = {}
        self._beat_at = monotonic()
        self._closing = threading.Event()
        self._waking = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="strop-runner", daemon=True)

    def start(self) -> None:
        """Begin to work, in a thread."""
        self._thread.start()

    def wake(self) -> None:
        """Look at the jobs now, not only after the usual interval."""
        self._waking.set()

    def close(self) -> None:
        """Stop working. Training processes go on; whoever runs the jobs next finds them."""
        self._closing.set()
        self._waking.set()
        if self._thread.ident is not None:
            self._thread.join()
        for job, check in self._checks.values():
            check.close()
            self._guarded(job, self._tools.leases.release)
        for work in self._works.values():
            self._guarded(work.job, self._tools.leases.release)
        self._checks.clear()
        self._works.clear()

    def tick(self) -> None:
        """One round. What goes wrong with one job keeps no other from going on."""
        jobs = self._tools.leases.open_jobs()
        self._drop_lost(jobs)
        self._beat()
        for job in jobs:
            if job.status is JobStatus.RUNNING:
                self._guarded(job, self._run)
            elif job.status is JobStatus.VALIDATING_FILES:
                self._guarded(job, self._check)
        for job in jobs:
            if job.status is JobStatus.QUEUED and len(self._works) < self._concurrency:
                self._guarded(job, self._begin)
        self._sightings = {job.id: self._sightings[job.id] for job in jobs if job.id in self._sightings}

    def _loop(self) -> None:
        complaint = ""
        while not self._closing.is_set():
            try:
                self.tick()
                complaint = ""
            except Exception as error:  # the database is away, or full
                if str(error) != complaint:
                    log.exception("the jobs cannot be looked at")
                complaint = str(error)
            self._waking.wait(self._tools.limits.interval_s)
            self._waking.clear()

    def _run(self, job: Job) -> None:
        work = self._works.get(job.id)
        if work is None:
            if not self._may_take(job) or (work := Work.take_over(self._tools, job)) is None:
                return
            log.info("job %s is taken over", job.id)
            self._keep(work)
        elif not work.tick(job):
            self._finish(work)

    def _begin(self, job: Job) -> None:
        work = Work.begin(self._tools, job)
        if work is not None:
            log.info("job %s is begun", job.id)
            self._keep(work)

    def _keep(self, work: Work) -> None:
        """Take care of a job from now on, beginning at once."""
        self._works[work.job.id] = work
        if work.job.status is not JobStatus.RUNNING or not work.tick(work.job):
            self._finish(work)

    def _finish(self, work: Work) -> None:
        self._works.pop(work.job.id, None)
        self._complaints.pop(work.job.id, None)
        log.info("job %s is %s", work.job.id, work.job.status)
        if work.job.status.finished:
            self._on_finished(work.job)

    def _check(self, job: Job) -> None:
        """Read the files of a job, one job at a time."""
        if job.id in self._checks:
            self._conclude_check(job, self._checks[job.id][1])
        elif not self._checks and self._may_take(job):
            claimed = self._tools.leases.claim(job)
            if claimed is not None:
                try:
                    data = anchored(claimed.config, self._tools.folder.path).data
                    self._checks[job.id] = claimed, self._begin_check(data, self._tools.environment())
                except StropError as error:
                    self._refuse(claimed, error)

    def _conclude_check(self, job: Job, check: Check) -> None:
        try:
            counts = check.result()
        except StropError as error:
            del self._checks[job.id]
            self._refuse(job, error)
            return
        if counts is None:
            return
        del self._checks[job.id]  # should the next line fail, the files are read once more
        if job.wanted == "pause":
            self._tools.leases.settle(job, JobStatus.PAUSED, [NewEvent("Job paused", data=counts)])
        else:
            told = NewEvent("Files validated and moving job to queued state", data=counts)
            self._tools.leases.settle(job, JobStatus.QUEUED, [told])

    def _refuse(self, job: Job, error: StropError) -> None:
        values = {"reason": error.message, "error_code": error.code, "error_param": error.param}
        told = NewEvent(f"Job failed: {error.message}", level="error")
        self._tools.leases.settle(job, JobStatus.FAILED, [told], **values)

    def _may_take(self, job: Job) -> bool:
        """Whether nobody else holds a job: it is free, it was ours, or its holder gives no sign of life."""
        if job.lease_owner in (None, self._tools.leases.owner):
            return True
        now = self._tools.monotonic()
        seen = self._sightings.get(job.id)
        if seen is None or (seen.token, seen.expires_at) != (job.token, job.lease_expires_at):
            seen = self._sightings[job.id] = _Sighting(job.token, job.lease_expires_at, now)
        return now - seen.since > self._tools.limits.lease_s

    def _beat(self) -> None:
        """Renew what is held, three times in the life of a lease."""
        now = self._tools.monotonic()
        if now < self._beat_at:
            return
        self._beat_at = now + self._tools.limits.lease_s / 3
        for job in [work.job for work in self._works.values()] + [job for job, _ in self._checks.values()]:
            self._guarded(job, self._tools.leases.beat)

    def _drop_lost(self, jobs: Sequence[Job]) -> None:
        """Let go of jobs that are another runner's by now, or that a client took away."""
        tokens = {job.id: job.token for job in jobs}
        for job in [work.job for work in self._works.values()] + [job for job, _ in self._checks.values()]:
            if tokens.get(job.id) != job.token:
                self._drop(job)

    def _drop(self, job: Job) -> None:
        self._works.pop(job.id, None)
        self._complaints.pop(job.id, None)
        if job.id in self._checks:
            self._checks.pop(job.id)[1].close()

    def _guarded(self, job: Job, act: Callable[[Job], object]) -> None:
        """Do something about a job; what goes wrong is tried again in the next round."""
        try:
            act(job)
        except LeaseLost as lost:
            log.warning("%s", lost.message)
            self._drop(job)
        except WishChanged:
            pass  # the next round sees it
        except Exception as error:
            if self._complaints.get(job.id) != str(error):  # not in every round
                log.exception("job %s", job.id)
            self._complaints[job.id] = str(error)
