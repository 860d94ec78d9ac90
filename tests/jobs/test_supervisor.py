"""The supervisor, round by round, with real processes that have no model: see trainer.py."""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from job_cases import NoIngester, config, make_inputs, new_job, stub_command, supervisor, until
from trainer import metrics_of

from strop.config import dump_config
from strop.jobs.checking import CHECK
from strop.jobs.job import Job, JobQueue, NewJob
from strop.jobs.launcher import LocalLauncher, Process
from strop.jobs.plan import Demand, Served
from strop.jobs.states import Limits
from strop.jobs.supervisor import Supervisor
from strop.jobs.task import Task, TaskStatus
from strop.store.datafolder import DataFolder
from strop.store.db import Database, open_database
from strop.store.rundir import RunDir
from strop.store.tables import tasks

QUICK = Limits(backoff_s=0.01, grace_s=0.2)


class Server:
    """A data folder with a queue, and runners for it."""

    def __init__(self, folder: DataFolder, database: Database) -> None:
        self.folder = folder
        self.time = 1_000.0
        self.queue = JobQueue(database, clock=lambda: self.time)
        self.ingester = NoIngester()
        self.secrets: dict[str, str] = {}
        self._runners: list[Supervisor] = []
        self._launchers: list[LocalLauncher] = []
        make_inputs(folder)

    def runner(self, limits: Limits = QUICK, plan: dict[str, Any] | None = None, **options: Any) -> Supervisor:
        """A runner that nothing drives but `tick`. Files are not read unless `check` says so."""
        launcher = LocalLauncher(stub_command(self.folder, **(plan or {})))
        self._launchers.append(launcher)
        options = {"ingester": self.ingester, "secrets": self.secrets, "limits": limits, **options}
        runner = supervisor(self.queue, self.folder, launcher, **options)
        self._runners.append(runner)
        return runner

    def run_of(self, job: Job) -> RunDir:
        """The run folder of a job."""
        return RunDir(self.folder.found(job.folder))

    def drive(self, runner: Supervisor, job: Job, condition: Callable[[Job], Any]) -> Job:
        """Tick until a condition holds for a job."""
        until(lambda: condition(self.queue.get(job.id)), runner.tick)
        return self.queue.get(job.id)

    def finish(self, runner: Supervisor, job: Job) -> Job:
        """Tick until a job is neither waiting nor running."""
        return self.drive(runner, job, lambda found: found.status.finished or found.status is TaskStatus.PAUSED)

    def steps(self, job: Job) -> list[int]:
        """Steps that events told of, in their order."""
        return [event.data["step"] for event in self.events(job) if event.type == "metrics" and event.data]

    def events(self, job: Job) -> Any:
        return self.queue.events(job.id, limit=10_000)

    def messages(self, job: Job) -> list[str]:
        """Messages of events but for those of steps and checkpoints."""
        return [event.message for event in self.events(job) if not re.match("Step|Checkpoint", event.message)]

    def launches(self, job: Job) -> list[str]:
        """The processes that got the lock of a job's run: number and token."""
        file = self.run_of(job).path / "launches"
        return file.read_text().splitlines() if file.exists() else []

    def close(self) -> None:
        """End everything, processes included."""
        for runner in self._runners:
            runner.close()
        for job in self.queue.list(limit=100):
            numbers = {int(line.split()[0]) for line in self.launches(job)} | ({job.pid} if job.pid else set())
            for launcher, number in itertools.product(self._launchers, numbers):
                end(launcher, Process(number, 0.0))


def end(launcher: LocalLauncher, process: Process) -> None:
    until(lambda: launcher.poll(process) is not None, lambda: launcher.stop(process, now=True))


def is_running(job: Job) -> bool:
    return job.status is TaskStatus.RUNNING and job.pid is not None


def serve(tmp_path: Path, database: Database) -> Iterator[Server]:
    server = Server(DataFolder.open(tmp_path / "data"), database)
    yield server
    server.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    database = open_database(None, tmp_path)
    yield from serve(tmp_path, database)
    database.close()


@pytest.fixture
def both(tmp_path: Path, database: Database) -> Iterator[Server]:
    """The same over SQLite and PostgreSQL."""
    yield from serve(tmp_path, database)


# A life without trouble


def test_a_job_goes_from_its_files_to_its_model(both: Server) -> None:
    job = both.queue.create(new_job(suffix="mine"))
    done = both.finish(both.runner(check=LocalLauncher(CHECK)), job)
    assert (done.status, done.fine_tuned_model, done.error) == (TaskStatus.SUCCEEDED, job.model_name, None)
    assert both.messages(job) == [
        "Created fine-tuning job",
        "Files validated and moving job to queued state",
        "Job started",
        f"New fine-tuned model created: {job.model_name}",
        "The job has successfully completed",
    ]
    assert both.steps(job) == [1, 2, 3, 4]
    checkpoints = [event.data["step"] for event in both.events(job) if event.message.startswith("Checkpoint")]
    assert checkpoints == [2, 4]
    assert (done.run_id, done.lease_owner, done.pid) == (f"run_{job.id}", None, None)
    assert done.started_at == done.finished_at == both.time
    assert len(both.launches(job)) == 1


def test_the_run_folder_has_the_configuration_with_whole_paths(server: Server) -> None:
    job = server.queue.create(new_job())
    server.finish(server.runner(), job)
    written = server.run_of(job).config()
    assert written.data.train == str(server.folder.files / "file-1")
    assert written.rewards[0].source == str(server.folder.path / "rewards/rw_1/1/reward.py:score")
    assert written.train == config().train


def test_jobs_run_one_after_another_in_the_order_of_the_queue(server: Server) -> None:
    runner = server.runner(plan={"step_s": 0.05})
    first, second = (server.queue.create(new_job(str(number))) for number in range(2))
    waiting = server.drive(runner, second, lambda job: job.status is TaskStatus.QUEUED)
    server.drive(runner, first, is_running)
    assert server.queue.position(waiting) == 1
    server.finish(runner, first)
    assert server.queue.get(second.id).started_at is None or server.queue.get(first.id).started_at is not None
    done = server.finish(runner, second)
    assert done.status is TaskStatus.SUCCEEDED


def test_as_many_jobs_run_at_a_time_as_was_asked_for(server: Server) -> None:
    runner = server.runner(plan={"ends": [{"step": 1, "how": "hang"}]}, concurrency=2)
    jobs = [server.queue.create(new_job(str(number))) for number in range(3)]
    for job in jobs[:2]:
        server.drive(runner, job, is_running)
    third = server.drive(runner, jobs[2], lambda job: job.status is TaskStatus.QUEUED)
    runner.tick()
    assert server.queue.position(third) == 1


# The device


class FakeDevice:
    """A device of 10 GB on which the model process holds some, and every job needs 6."""

    memory_bytes = 10 * 10**9

    def __init__(self, held: float = 0.0, idle: bool = True) -> None:
        self.held = held
        self.idle = idle

    def demand(self, task: Task) -> Demand:
        return Demand(6 * 10**9 if task.kind == "training" else 0)

    def served(self) -> Served:
        return Served(int(self.held * 1e9), self.idle)

    def make_room(self) -> None:
        assert self.idle
        self.held = 0.0


def test_a_job_waits_for_memory_and_says_so_once(both: Server) -> None:
    device = FakeDevice(held=8.8, idle=False)
    runner = both.runner(device=device)
    job = both.queue.create(new_job())
    said = "Waits for 6.0 GB of device memory; 1.2 GB are free"
    assert both.drive(runner, job, lambda found: found.reason).reason == said
    device.held = 8.0
    for _ in range(3):
        runner.tick()
    waiting = both.queue.get(job.id)
    assert (waiting.status, waiting.reason) == (TaskStatus.QUEUED, said)
    device.held = 0.0
    done = both.finish(runner, job)
    assert (done.status, done.reason) == (TaskStatus.SUCCEEDED, None)
    assert both.messages(job).count(said) == 1


def test_idle_models_are_unloaded_for_a_job(server: Server) -> None:
    device = FakeDevice(held=8.0)
    job = server.queue.create(new_job())
    assert server.finish(server.runner(device=device), job).status is TaskStatus.SUCCEEDED
    assert device.held == 0.0
    assert not any(message.startswith("Waits") for message in server.messages(job))


# Files


def test_files_with_faults_fail_a_job_before_it_is_queued(server: Server) -> None:
    (server.folder.files / "file-1").write_text('{"prompt": "one"}\n{"prompt": 7}\n')
    job = server.queue.create(new_job())
    failed = server.finish(server.runner(check=LocalLauncher(CHECK)), job)
    assert failed.error is not None
    assert failed.error["code"] == "invalid_data"
    assert "file-1:2: " in failed.error["message"]
    assert not server.run_of(job).path.exists()


def test_a_job_is_cancelled_while_its_files_are_read(server: Server) -> None:
    (server.folder.files / "file-1").unlink()
    os.mkfifo(server.folder.files / "file-1")
    job = server.queue.create(new_job())
    runner = server.runner(check=LocalLauncher(CHECK))
    until(lambda: running_checks(server), runner.tick)
    assert server.queue.request(job.id, "cancel").status is TaskStatus.CANCELLED
    other = server.queue.create(NewJob("other", "tiny", config().model_copy(update={"data": second_file(server)})))
    assert server.finish(runner, other).status is TaskStatus.SUCCEEDED


def running_checks(server: Server) -> list[str]:
    query = sa.select(tasks.c.id).where(tasks.c.kind == "validation", tasks.c.status == "running")
    with server.queue.database.read() as connection:
        return list(connection.scalars(query))


def second_file(server: Server) -> Any:
    return config().data.model_copy(update={"train": str(server.folder.files / "file-2")})


def test_a_job_that_is_paused_while_its_files_are_read_waits_behind_them(server: Server) -> None:
    job = server.queue.create(new_job())
    assert server.queue.request(job.id, "pause").status is TaskStatus.VALIDATING_FILES
    runner = server.runner()
    assert server.finish(runner, job).status is TaskStatus.PAUSED
    server.queue.resume(job.id)
    assert server.finish(runner, job).status is TaskStatus.SUCCEEDED


# Pausing and cancelling


def test_a_paused_job_has_a_checkpoint_and_goes_on_from_it(both: Server) -> None:
    runner = both.runner(plan={"steps": 30, "step_s": 0.02, "save_every": 100})
    job = both.queue.create(new_job())
    both.drive(runner, job, lambda _: len(both.steps(job)) >= 3)
    both.queue.request(job.id, "pause")
    paused = both.finish(runner, job)
    assert (paused.status, paused.requested, paused.error_code) == (TaskStatus.PAUSED, None, None)
    stopped = both.run_of(job).checkpoint_status()["latest"]
    assert both.steps(job) == list(range(1, stopped + 1))
    assert paused.reason == f"paused after step {stopped} on request"
    both.queue.resume(job.id)
    done = both.finish(runner, job)
    assert done.status is TaskStatus.SUCCEEDED
    assert both.steps(job) == list(range(1, 31))
    assert both.messages(job)[2:6] == [
        "Job started",
        f"Job paused: paused after step {stopped} on request",
        "Job resumed: waiting for its turn",
        "Job goes on",
    ]


def test_a_job_is_resumed_with_another_configuration(server: Server) -> None:
    runner = server.runner(plan={"steps": 20, "step_s": 0.02})
    job = server.queue.create(new_job())
    server.drive(runner, job, is_running)
    server.queue.request(job.id, "pause")
    server.finish(runner, job)
    server.queue.resume(job.id, {"train": {"micro_batch_tokens": 512}})
    server.finish(runner, job)
    assert server.run_of(job).config().train.micro_batch_tokens == 512


def test_a_cancelled_job_is_over_once_its_process_has_saved(server: Server) -> None:
    runner = server.runner(plan={"steps": 1_000, "step_s": 0.02, "save_s": 0.02}, limits=Limits(grace_s=30))
    job = server.queue.create(new_job())
    server.drive(runner, job, lambda _: server.steps(job))
    asked = server.queue.request(job.id, "cancel")
    assert (asked.status, asked.requested) == (TaskStatus.RUNNING, "cancel")
    done = server.finish(runner, job)
    assert (done.status, done.requested, done.fine_tuned_model) == (TaskStatus.CANCELLED, None, None)
    assert done.finished_at == server.time
    run = server.run_of(job)
    assert run.status()["state"] == "paused"
    assert run.checkpoint_status()["latest"] == server.steps(job)[-1]
    assert not run.locked()


def test_a_cancelled_process_that_does_not_end_is_killed(server: Server) -> None:
    runner = server.runner(plan={"ends": [{"step": 3, "how": "hang"}]})
    job = server.queue.create(new_job())
    server.drive(runner, job, lambda _: len(server.steps(job)) == 2)
    server.queue.request(job.id, "cancel")
    assert server.finish(runner, job).status is TaskStatus.CANCELLED
    assert not server.run_of(job).locked()
    # And its run does not say for ever that it is running.
    assert server.run_of(job).status()["state"] == "paused"


def test_cancelling_a_job_that_is_being_paused_cancels_it(server: Server) -> None:
    runner = server.runner(plan={"ends": [{"step": 2, "how": "hang"}]})
    job = server.queue.create(new_job())
    server.drive(runner, job, is_running)
    for wanted in ("pause", "cancel"):
        server.queue.request(job.id, wanted)
        runner.tick()
    assert server.finish(runner, job).status is TaskStatus.CANCELLED


def test_a_process_stopped_from_outside_pauses_its_job(server: Server) -> None:
    runner = server.runner(plan={"steps": 1_000, "step_s": 0.02})
    job = server.queue.create(new_job())
    running = server.drive(runner, job, lambda found: is_running(found) and server.steps(job))
    assert running.pid is not None
    os.kill(running.pid, signal.SIGTERM)
    paused = server.finish(runner, job)
    assert paused.status is TaskStatus.PAUSED
    assert "received SIGTERM from outside" in (paused.reason or "")


# Trouble


def test_a_killed_process_is_started_again_from_its_newest_checkpoint(server: Server) -> None:
    runner = server.runner(plan={"ends": [{"step": 4, "how": "kill"}]})
    job = server.queue.create(new_job())
    done = server.finish(runner, job)
    assert (done.status, done.restarts, done.reason) == (TaskStatus.SUCCEEDED, 0, None)
    assert server.steps(job) == [1, 2, 3, 4]
    assert [line.split()[1] for line in server.launches(job)] == ["2", "2"]
    (warning,) = [event for event in server.events(job) if event.level == "warn"]
    assert "killed (SIGKILL)" in warning.message
    assert "(restart 1 of 3 in 0.01 s)" in warning.message


def test_a_process_that_dies_again_and_again_is_given_up(server: Server) -> None:
    runner = server.runner(plan={"ends": [{"step": 2, "how": "kill"}] * 9})
    job = server.queue.create(new_job())
    failed = server.finish(runner, job)
    assert (failed.status, failed.error_code) == (TaskStatus.FAILED, "out_of_memory")
    assert "Given up after 3 restarts without a new checkpoint" in (failed.reason or "")
    assert "lower train.micro_batch_tokens" in (failed.reason or "")
    assert len(server.launches(job)) == 4
    assert server.run_of(job).status()["state"] == "failed"
    # What had been wrong is fixed.
    stub_command(server.folder)
    server.queue.resume(job.id)
    assert server.finish(runner, job).status is TaskStatus.SUCCEEDED
    assert server.steps(job) == [1, 2, 3, 4]


def test_restarts_count_anew_after_a_checkpoint(server: Server) -> None:
    ends = [{"step": step, "how": "kill"} for step in (3, 3, 5, 5)]
    job = server.queue.create(new_job())
    done = server.finish(server.runner(Limits(restarts=2, backoff_s=0.01), {"steps": 6, "ends": ends}), job)
    assert done.status is TaskStatus.SUCCEEDED
    assert server.steps(job) == list(range(1, 7))


def test_each_restart_waits_twice_as_long(server: Server) -> None:
    now = [0.0]
    limits = Limits(restarts=5, backoff_s=5.0, longest_backoff_s=15.0)
    plan = {"ends": [{"step": 1, "how": "kill"}] * 9}
    runner = server.runner(limits, plan, monotonic=lambda: now[0])
    job = server.queue.create(new_job())
    for restart, wait_s in enumerate((5, 10, 15, 15), 1):
        waiting = server.drive(runner, job, restarted(restart))
        assert f"(restart {restart} of 5 in {wait_s} s)" in (waiting.reason or "")
        now[0] += wait_s - 0.1
        runner.tick()
        assert len(server.launches(job)) == restart
        now[0] += 0.1
    server.queue.request(job.id, "cancel")
    assert server.finish(runner, job).status is TaskStatus.CANCELLED


def restarted(times: int) -> Callable[[Job], bool]:
    return lambda job: job.restarts == times


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("out_of_memory", TaskStatus.PAUSED),
        ("disk_full", TaskStatus.PAUSED),
        ("too_many_failed_groups", TaskStatus.PAUSED),
        ("invalid_reward", TaskStatus.FAILED),
    ],
)
def test_a_failure_that_a_restart_cannot_fix_says_what_to_do(code: str, status: TaskStatus, server: Server) -> None:
    left = {"message": "what happened", "code": code, "param": "rewards.source"}
    runner = server.runner(plan={"ends": [{"step": 3, "how": "fail", "status": left}]})
    job = server.queue.create(new_job())
    ended = server.finish(runner, job)
    assert (ended.status, ended.error_code) == (status, code)
    assert (ended.reason or "").startswith("what happened")
    assert len(server.launches(job)) == 1
    server.queue.resume(job.id)
    done = server.finish(runner, job)
    assert (done.status, done.error_code) == (TaskStatus.SUCCEEDED, None)
    assert server.steps(job) == [1, 2, 3, 4]


def test_a_damaged_checkpoint_costs_its_steps_only(server: Server) -> None:
    runner = server.runner(plan={"steps": 8, "ends": [{"step": 7, "how": "fail", "status": {"code": "disk_full"}}]})
    job = server.queue.create(new_job())
    assert server.finish(runner, job).status is TaskStatus.PAUSED
    run = server.run_of(job)
    (run.checkpoints / "step-000006" / "weights.json").write_text("{}")
    server.queue.resume(job.id)
    assert server.finish(runner, job).status is TaskStatus.SUCCEEDED
    assert "step-000006" in run.training_log.read_text()
    assert server.steps(job) == [line["step"] for line in run.metrics()] == list(range(1, 9))


def test_a_secret_that_is_missing_is_named_and_goes_to_the_process_once_it_is_there(server: Server) -> None:
    reward = config().rewards[0].model_copy(update={"env": ("JUDGE_KEY",)})
    job = server.queue.create(NewJob("case", "tiny", config().model_copy(update={"rewards": (reward,)})))
    failed = server.finish(server.runner(), job)
    assert failed.error == {
        "code": "invalid_reward",
        "message": "reward 'score' needs JUDGE_KEY: store it as a secret of the server, then resume the job",
        "param": "rewards.env",
    }
    server.secrets = {"JUDGE_KEY": "hush", "OTHER_KEY": "hush too"}
    runner = server.runner(plan={"ends": [{"step": 1, "how": "hang"}]})
    server.queue.resume(job.id)
    running = server.drive(runner, job, lambda found: is_running(found) and server.launches(job))
    environment = Path(f"/proc/{running.pid}/environ").read_text().split("\0")
    assert "JUDGE_KEY=hush" in environment
    assert not any(line.startswith("OTHER_KEY") for line in environment)
    told = json.dumps([event.message for event in server.events(job)]) + json.dumps(running.request)
    assert "hush" not in told + running.config_json + dump_config(server.run_of(job).config())


def test_a_database_that_is_full_for_a_while_loses_nothing(server: Server) -> None:
    runner = server.runner(plan={"steps": 80, "step_s": 0.005})
    job = server.queue.create(new_job())
    server.drive(runner, job, is_running)
    pages = "PRAGMA max_page_count = {}"
    with server.queue.database.write() as connection:
        connection.exec_driver_sql(pages.format(1))  # as many as there are
    until(lambda: server.run_of(job).status()["state"] == "succeeded", runner.tick)
    for _ in range(3):
        runner.tick()
    full = server.queue.get(job.id)
    assert (full.status, len(server.steps(job)) < 80) == (TaskStatus.RUNNING, True)
    with server.queue.database.write() as connection:
        connection.exec_driver_sql(pages.format(1_000_000))
    assert server.finish(runner, job).status is TaskStatus.SUCCEEDED
    assert server.steps(job) == list(range(1, 81))
    assert len(server.launches(job)) == 1


def test_an_ingester_that_fails_stops_no_job(server: Server) -> None:
    def refuse(path: Path) -> str:
        raise OSError("no room")

    server.ingester.import_run = refuse  # type: ignore[method-assign]
    job = server.queue.create(new_job())
    assert server.finish(server.runner(), job).status is TaskStatus.SUCCEEDED


def test_a_process_that_cannot_be_started_is_tried_again(server: Server) -> None:
    missing = LocalLauncher(["/nowhere/python"])
    runner = supervisor(server.queue, server.folder, missing, limits=QUICK)
    job = server.queue.create(new_job())
    failed = server.finish(runner, job)
    assert failed.status is TaskStatus.FAILED
    assert "no process could be started" in (failed.reason or "")


def test_a_run_folder_that_cannot_be_made_fails_its_job(server: Server) -> None:
    job = server.queue.create(new_job())
    server.folder.runs.rmdir()
    server.folder.runs.write_text("in the way")
    failed = server.finish(server.runner(), job)
    assert failed.status is TaskStatus.FAILED
    assert str(server.folder.runs) in (failed.reason or "")


def test_a_run_that_another_machine_trains_is_waited_for(server: Server) -> None:
    now = [0.0]
    runner = server.runner(monotonic=lambda: now[0])
    job = server.queue.create(new_job())
    server.drive(runner, job, lambda found: found.status is TaskStatus.QUEUED)
    run = RunDir.create(server.run_of(job).path, config())
    with open(run.path / ".lock", "w") as file:
        file.write("4194999")  # above the highest number of a process
        file.flush()
        fcntl.flock(file, fcntl.LOCK_EX)
        waiting = server.drive(runner, job, lambda found: found.reason)
        assert "by process 4194999, which is not on this machine" in (waiting.reason or "")
        token = waiting.token
        for _ in range(3):
            runner.tick()
        assert server.queue.get(job.id).token == token
    now[0] += 60.0
    done = server.finish(runner, job)
    assert (done.status, done.reason, len(server.launches(job))) == (TaskStatus.SUCCEEDED, None, 1)


# Supervisors that come and go


def test_a_runner_that_closes_leaves_its_process_to_the_next(server: Server) -> None:
    plan = {"steps": 60, "step_s": 0.02}
    first = server.runner(plan=plan)
    job = server.queue.create(new_job())
    running = server.drive(first, job, lambda found: is_running(found) and server.steps(job))
    first.close()
    assert server.queue.get(job.id).lease_owner is None
    second = server.runner(plan=plan, owner="another machine")
    adopted = server.drive(second, job, lambda found: found.lease_owner == "another machine")
    assert (adopted.pid, adopted.token) == (running.pid, running.token + 1)
    assert server.finish(second, job).status is TaskStatus.SUCCEEDED
    assert len(server.launches(job)) == 1
    assert server.steps(job) == list(range(1, 61))
    assert server.messages(job).count("Job started") == 1


def test_a_process_that_finished_while_no_server_watched_is_not_started_again(server: Server) -> None:
    first = server.runner(plan={"steps": 10, "step_s": 0.01})
    job = server.queue.create(new_job())
    server.drive(first, job, is_running)
    first.close()
    until(lambda: server.run_of(job).status()["state"] == "succeeded")
    assert server.finish(server.runner(plan={"steps": 10}), job).status is TaskStatus.SUCCEEDED
    assert len(server.launches(job)) == 1
    assert server.steps(job) == list(range(1, 11))


def test_a_process_that_died_while_no_server_watched_is_started_again(server: Server) -> None:
    plan = {"ends": [{"step": 3, "how": "kill"}]}
    first = server.runner(plan=plan)
    job = server.queue.create(new_job())
    server.drive(first, job, is_running)
    first.close()
    until(lambda: server.launches(job) and not server.run_of(job).locked())
    done = server.finish(server.runner(plan=plan), job)
    assert done.status is TaskStatus.SUCCEEDED
    assert server.steps(job) == [1, 2, 3, 4]
    (warning,) = [event.message for event in server.events(job) if event.level == "warn"]
    assert "ended while no server watched it" in warning


def test_a_run_that_the_machine_stopped_goes_on_when_the_server_is_back(server: Server) -> None:
    plan = {"steps": 40, "step_s": 0.02}
    first = server.runner(plan=plan)
    job = server.queue.create(new_job())
    running = server.drive(first, job, lambda found: is_running(found) and server.steps(job))
    first.close()
    assert running.pid is not None
    os.kill(running.pid, signal.SIGTERM)
    until(lambda: server.run_of(job).status()["state"] == "paused")
    done = server.finish(server.runner(plan=plan), job)
    assert (done.status, done.restarts) == (TaskStatus.SUCCEEDED, 0)
    assert len(server.launches(job)) == 2


def test_a_runner_whose_job_was_taken_lets_go_of_it(both: Server) -> None:
    plan = {"steps": 60, "step_s": 0.02}
    job = both.queue.create(new_job())
    first = both.runner(plan=plan, owner="one")
    running = both.drive(first, job, is_running)
    # The other one takes it for dead: its clock says that nothing was heard for a minute.
    later = [0.0]
    second = both.runner(plan=plan, owner="two", monotonic=lambda: later[0])
    second.tick()
    later[0] += 60.0
    second.tick()
    taken = both.queue.get(job.id)
    assert (taken.lease_owner, taken.token, taken.pid) == ("two", running.token + 1, running.pid)
    for _ in range(3):
        first.tick()
    assert both.queue.get(job.id).token == taken.token
    assert both.finish(second, job).status is TaskStatus.SUCCEEDED
    assert len(both.launches(job)) == 1
    assert both.steps(job) == list(range(1, 61))


@pytest.mark.parametrize("hours", [-24, 24])
def test_a_clock_that_was_moved_makes_no_second_holder(hours: int, both: Server) -> None:
    plan = {"ends": [{"step": 2, "how": "hang"}]}
    job = both.queue.create(new_job())
    first = both.runner(plan=plan, owner="one")
    running = both.drive(first, job, is_running)
    second = both.runner(plan=plan, owner="two")
    second.tick()
    both.time += hours * 3_600
    for runner in (second, first, second):
        runner.tick()
    found = both.queue.get(job.id)
    assert (found.lease_owner, found.token) == ("one", running.token)
    assert len(both.launches(job)) <= 1


def test_a_living_holder_is_not_robbed_however_long_it_goes_on(server: Server) -> None:
    plan = {"ends": [{"step": 2, "how": "hang"}]}
    now = [0.0]
    job = server.queue.create(new_job())
    first = server.runner(plan=plan, owner="one", monotonic=lambda: now[0])
    server.drive(first, job, is_running)
    second = server.runner(plan=plan, owner="two", monotonic=lambda: now[0])
    for _ in range(20):
        now[0] += 10.0
        server.time += 10.0
        first.tick()
        second.tick()
    assert server.queue.get(job.id).lease_owner == "one"


def test_a_run_folder_that_is_gone_fails_its_job(server: Server) -> None:
    plan = {"steps": 30, "step_s": 0.02}
    job = server.queue.create(new_job())
    first = server.runner(plan=plan)
    server.drive(first, job, lambda found: is_running(found) and server.steps(job))
    server.queue.request(job.id, "pause")
    server.finish(first, job)
    server.run_of(job).path.rename(server.folder.path / "elsewhere")
    server.queue.resume(job.id)
    failed = server.finish(first, job)
    assert failed.status is TaskStatus.FAILED
    assert f"run folder {server.run_of(job).path} is gone" in (failed.reason or "")


def test_a_run_that_somebody_trains_by_hand_is_watched_and_not_started_twice(server: Server) -> None:
    plan = {"steps": 40, "step_s": 0.02}
    runner = server.runner(plan=plan)
    job = server.queue.create(new_job())
    server.drive(runner, job, lambda found: found.status is TaskStatus.QUEUED)
    server.queue.request(job.id, "pause")
    run = RunDir.create(server.run_of(job).path, config())
    by_hand = LocalLauncher(stub_command(server.folder, **plan))
    process = by_hand.launch(run.path, dict(os.environ), token=0)
    until(lambda: run.process_id() == process.pid)
    server.queue.resume(job.id)
    assert server.drive(runner, job, is_running).pid == process.pid
    assert server.finish(runner, job).status is TaskStatus.SUCCEEDED
    assert len(server.launches(job)) == 1
    end(by_hand, process)


def test_a_thread_does_the_rounds(server: Server) -> None:
    runner = server.runner()
    runner.start()
    job = server.queue.create(new_job())
    runner.wake()
    until(lambda: server.queue.get(job.id).status.finished)
    runner.close()
    assert server.queue.get(job.id).status is TaskStatus.SUCCEEDED


def test_the_numbers_of_an_interrupted_job_are_those_of_one_that_was_not(server: Server) -> None:
    ends = [{"step": 3, "how": "kill"}, {"step": 6, "how": "kill"}]
    job = server.queue.create(new_job())
    server.finish(server.runner(plan={"steps": 8, "ends": ends}), job)
    found = [(line["step"], line["reward"]) for line in server.run_of(job).metrics()]
    assert found == [(step, metrics_of(17, step)["reward"]) for step in range(1, 9)]
    told = [event.data["train_mean_reward"] for event in server.events(job) if event.type == "metrics"]
    assert told == [reward for _, reward in found]


# Processes that get nowhere


def test_a_process_that_writes_nothing_for_too_long_is_ended_and_started_again(server: Server) -> None:
    limits = Limits(backoff_s=0.01, stalled_s=1.0)
    job = server.queue.create(new_job())
    done = server.finish(server.runner(limits, {"ends": [{"step": 4, "how": "hang"}]}), job)
    assert done.status is TaskStatus.SUCCEEDED
    assert len(server.launches(job)) == 2
    assert server.steps(job) == [1, 2, 3, 4]
    (warning,) = [event.message for event in server.events(job) if event.level == "warn"]
    assert "made no progress" in warning
    assert "(restart 1 of 3" in warning


def test_a_slow_process_that_writes_now_and_then_is_left_alone(server: Server) -> None:
    limits = Limits(backoff_s=0.01, stalled_s=3.0)
    job = server.queue.create(new_job())
    done = server.finish(server.runner(limits, {"steps": 8, "step_s": 0.7}), job)
    assert done.status is TaskStatus.SUCCEEDED
    assert len(server.launches(job)) == 1
