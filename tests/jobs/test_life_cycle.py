"""The life of jobs under any order of wishes, deaths and restarts: a state machine.

Processes are played by objects that hold the real locks of their runs; the database and the run
folders are real.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule
from job_cases import new_job, supervisor

from strop.errors import Conflict, RunError
from strop.jobs.job import JobQueue
from strop.jobs.launcher import UNKNOWN_EXIT, Process
from strop.jobs.task import Action, TaskStatus
from strop.store.datafolder import DataFolder
from strop.store.db import open_database
from strop.store.files import write_json
from strop.store.rundir import RunDir, RunState

STEPS = 4
SAVE_EVERY = 2


class Trainer:
    """A training process: starts, takes the lock if it may, does steps, ends."""

    def __init__(self, run: RunDir, token: int, process: Process) -> None:
        self.run, self.token, self.process = run, token, process
        self.code: int | None = None
        self.stopping = False
        self.trains = False
        self._held = ExitStack()

    def advance(self) -> None:
        """The next thing that it does."""
        if not self.trains:
            self._begin()
            return
        step = self._saved() + 1 if not self.run.metrics() else self.run.metrics()[-1]["step"] + 1
        if step <= STEPS:
            self.run.append_metrics(step, {"reward": step / 10})
            self.run.set_status(RunState.RUNNING, step=step, total_steps=STEPS)
        if step % SAVE_EVERY == 0 or self.stopping:
            write_json(self.run.checkpoint_status_file, {"latest": step, "checkpoints": [_entry(step)]})
        if step >= STEPS:
            self._say(RunState.SUCCEEDED)
        elif self.stopping:
            self._say(RunState.PAUSED)

    def end(self, code: int) -> None:
        """It is gone, whatever it was at."""
        self.code = code
        self._held.close()

    def _begin(self) -> None:
        try:
            self._held.enter_context(self.run.lock(self.token))
        except RunError:
            self.end(1)
            return
        self.trains = True
        self.run.forget_after(self._saved())
        self.run.set_status(RunState.RUNNING, step=self._saved(), total_steps=STEPS)

    def _saved(self) -> int:
        return int(self.run.checkpoint_status().get("latest") or 0)

    def _say(self, state: RunState) -> None:
        self.run.set_status(state)
        self.end(0)


def _entry(step: int) -> dict[str, object]:
    return {"step": step, "validation_reward": None, "size": 1}


class Machine:
    """All processes of the machine: they outlive servers."""

    def __init__(self) -> None:
        self.trainers: dict[int, Trainer] = {}

    @property
    def living(self) -> list[Trainer]:
        return [trainer for trainer in self.trainers.values() if trainer.code is None]


class PlayedLauncher:
    """A launcher of one server; what other servers started is found by its lock."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._children: set[int] = set()

    def launch(self, run_folder: Path, env: Mapping[str, str], token: int) -> Process:
        """Never while another one trains the run, or could still begin to."""
        run = RunDir(run_folder)
        assert run.fence() == token
        for other in self._machine.living:
            assert other.run.path != run_folder or (not other.trains and other.token < token)
        process = Process(len(self._machine.trainers) + 1, 0.0)
        self._machine.trainers[process.pid] = Trainer(run, token, process)
        self._children.add(process.pid)
        return process

    def find(self, run_folder: Path, known: Process | None = None) -> Process | None:
        """Who trains, or is about to."""
        here = [trainer for trainer in self._machine.living if trainer.run.path == run_folder]
        trains = [trainer.process for trainer in here if trainer.trains]
        return next(iter(trains), None) or next((t.process for t in here if t.process == known), None)

    def poll(self, process: Process) -> int | None:
        """The status of a process that another server started is not known."""
        code = self._machine.trainers[process.pid].code
        return code if code is None or process.pid in self._children else UNKNOWN_EXIT

    def stop(self, process: Process, now: bool) -> None:
        """As signals do."""
        trainer = self._machine.trainers[process.pid]
        trainer.stopping = True
        if now and trainer.code is None:
            trainer.end(-9)


class Jobs(RuleBasedStateMachine):
    """Clients, processes, servers that come and go."""

    created = Bundle("created")

    @initialize()
    def open(self) -> None:
        """A first server over an empty folder."""
        self.resources = ExitStack()
        folder = self.resources.enter_context(tempfile.TemporaryDirectory())
        self.folder = DataFolder.open(Path(folder) / "data")
        database = open_database(None, self.folder.path)
        self.resources.callback(database.close)
        self.queue = JobQueue(database)
        self.machine = Machine()
        self.now = 0.0
        self.over: dict[str, TaskStatus] = {}
        self.cancelled: set[str] = set()
        self.restart()

    @rule(target=created)
    def create(self) -> str:
        return self.queue.create(new_job()).id

    @rule(job_id=created, wanted=st.sampled_from(("pause", "cancel")))
    def want(self, job_id: str, wanted: Action) -> None:
        with suppress(Conflict):
            self.queue.request(job_id, wanted)
            if wanted == "cancel":
                self.cancelled.add(job_id)

    @rule(job_id=created)
    def resume(self, job_id: str) -> None:
        with suppress(Conflict):
            self.queue.resume(job_id)

    @rule(times=st.integers(1, 4))
    def work(self, times: int) -> None:
        """The server looks at its jobs."""
        for _ in range(times):
            self.runner.tick()

    @rule(seconds=st.sampled_from((1.0, 40.0)))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(times=st.integers(1, 4))
    def train(self, times: int) -> None:
        """Every process gets on."""
        for _ in range(times):
            for trainer in self.machine.living:
                trainer.advance()

    @rule()
    def kill(self) -> None:
        """Every process dies."""
        for trainer in self.machine.living:
            trainer.end(-9)

    @rule(politely=st.booleans())
    def restart_server(self, politely: bool) -> None:
        if politely:
            self.runner.close()
        self.restart()

    @rule()
    def move_away(self) -> None:
        """Another server on another machine takes over, since this one seems dead."""
        stalled = self.runner
        self.restart(owner=f"machine {self.now}")
        self.runner.tick()
        self.now += 60.0
        self.runner.tick()
        stalled.tick()  # and then it wakes up

    @invariant()
    def one_trains(self) -> None:
        if hasattr(self, "machine"):
            busy = [trainer.run.path for trainer in self.machine.living if trainer.trains]
            assert len(busy) == len(set(busy))

    @invariant()
    def what_is_over_stays_so(self) -> None:
        if not hasattr(self, "queue"):
            return
        for job in self.queue.list(limit=1_000):
            assert self.over.get(job.id, job.status) is job.status
            if job.status in (TaskStatus.SUCCEEDED, TaskStatus.CANCELLED):
                self.over[job.id] = job.status

    def teardown(self) -> None:
        """Left alone, every job comes to its end, and tells of each step once."""
        if not hasattr(self, "queue"):
            return
        for _ in range(60):
            self.train(2)
            self.wait(60.0)
            self.work(1)
        for job in self.queue.list(limit=1_000):
            assert job.status not in (TaskStatus.VALIDATING_FILES, TaskStatus.QUEUED, TaskStatus.RUNNING)
            if job.id in self.cancelled:
                assert job.status is TaskStatus.CANCELLED
            told = [
                event.data["step"]
                for event in self.queue.events(job.id, limit=1_000)
                if event.data and event.type == "metrics"
            ]
            assert told == list(range(1, len(told) + 1))
            if job.status is TaskStatus.SUCCEEDED:
                assert len(told) == STEPS
                assert [line["step"] for line in RunDir(self.folder.found(job.folder)).metrics()] == told
        self.resources.close()

    def restart(self, owner: str = "this machine") -> None:
        self.runner = supervisor(
            self.queue, self.folder, PlayedLauncher(self.machine), owner=owner, monotonic=lambda: self.now
        )


Jobs.TestCase.settings = settings(
    max_examples=25, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestJobs = Jobs.TestCase
