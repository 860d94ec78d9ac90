"""Runs the tasks of every kind, in one thread of the server.

Each round checks all open tasks: it starts tasks whose turn has come, takes over tasks without a
holder, and ticks each task that it holds. The processes outlive the server; the next server adopts
them.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from strop.jobs.kind import Kind, Tools
from strop.jobs.leases import LeaseLost, Leases, RequestChanged
from strop.jobs.plan import Demand, Device, Plan, Served, make_plan
from strop.jobs.states import Limits
from strop.jobs.task import Task, TaskStatus
from strop.jobs.work import Seat, Work

log = logging.getLogger(__name__)

_DEFAULT_LIMITS = Limits()
_AT_ONCE = {"training": 1, "evaluation": 1, "validation": 1, "trial": 2, "lengths": 1}


@dataclass(frozen=True)
class _Sighting:
    """Another holder's lease, and the time of its last change."""

    token: int
    expires_at: float | None
    since: float


class Supervisor:
    """Runs up to `at_once` tasks of each kind at a time."""

    def __init__(
        self,
        tools: Tools,
        kinds: Mapping[str, Kind],
        at_once: Mapping[str, int] = _AT_ONCE,
        limits: Limits = _DEFAULT_LIMITS,
        owner: str | None = None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        on_finished: Callable[[Task], object] = lambda task: None,
        device: Device | None = None,
    ) -> None:
        """`owner` identifies the only holder of the data folder's lock; after a restart it takes its
        tasks back at once. By default host and folder.
        `on_finished` is called with each task that ends while this runs. Without a `device`,
        memory is not planned."""
        leases = Leases(tools.database, owner or f"{socket.gethostname()}:{tools.folder.path}", limits.lease_s, clock)
        self._seat = Seat(leases, limits, monotonic, tools.folder.path)
        self._kinds = kinds
        self._at_once = {**_AT_ONCE, **at_once}
        self._on_finished = on_finished
        self._device = device
        self._demands: dict[str, Demand] = {}
        self._works: dict[str, Work] = {}
        self._sightings: dict[str, _Sighting] = {}
        self._complaints: dict[str, str] = {}
        self._beat_at = monotonic()
        self._closing = threading.Event()
        self._waking = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="strop-supervisor", daemon=True)

    def start(self) -> None:
        """Begin to work, in a thread."""
        self._thread.start()

    def wake(self) -> None:
        """Look at the tasks now, not only after the usual interval."""
        self._waking.set()

    def close(self) -> None:
        """Stop working. Processes continue, except those that need this server; the next supervisor adopts them."""
        self._closing.set()
        self._waking.set()
        if self._thread.ident is not None:
            self._thread.join()
        for work in self._works.values():
            if work.handler.ends_with_server:
                work.end_process()
            self._guarded(work.task, self._seat.leases.release)
        self._works.clear()

    def tick(self) -> None:
        """Run one round. An error in one task does not stop the others."""
        tasks = [task for task in self._seat.leases.open_tasks() if task.kind in self._kinds]
        self._drop_lost(tasks)
        self._beat()
        for task in tasks:
            if task.status is TaskStatus.RUNNING:
                self._guarded(task, self._run)
        self._demands = {task.id: self._demands[task.id] for task in tasks if task.id in self._demands}
        self._begin_waiting([task for task in tasks if task.status is TaskStatus.QUEUED])
        self._sightings = {task.id: self._sightings[task.id] for task in tasks if task.id in self._sightings}

    def _begin_waiting(self, waiting: Sequence[Task]) -> None:
        plan = self._plan(waiting)
        for task in plan.start:
            self._guarded(task, self._begin)
        if self._device is None or plan.blocked is None:
            return
        if plan.make_room:
            self._device.make_room()
        elif plan.blocked.reason is None:
            need = self._demand(plan.blocked).memory_bytes
            text = f"Waits for {need / 1e9:.1f} GB of device memory; {plan.free_bytes / 1e9:.1f} GB are free"
            self._guarded(plan.blocked, lambda task: self._seat.leases.explain(task, text))

    def _plan(self, waiting: Sequence[Task]) -> Plan:
        """What of the waiting tasks begins now. What needs the device waits until it is known what is served."""
        asked = [(task, self._demand(task)) for task in waiting]
        running = [(work.task, self._demand(work.task)) for work in self._works.values()]
        if self._device is None:
            return make_plan(asked, running, self._at_once, 0, Served())
        served: Served | None = Served()
        if any(demand.of_device for _, demand in asked):
            served = self._device.served()
        if served is None:
            asked = [(task, demand) for task, demand in asked if not demand.of_device]
        return make_plan(asked, running, self._at_once, self._device.memory_bytes, served or Served())

    def _demand(self, task: Task) -> Demand:
        """What a task needs of the device, looked at once; nothing where that cannot be told: it starts."""
        if self._device is None:
            return Demand()
        if task.id not in self._demands:
            try:
                self._demands[task.id] = self._device.demand(task)
            except Exception:
                log.exception("what %s %s needs cannot be told", task.kind, task.id)
                self._demands[task.id] = Demand()
        return self._demands[task.id]

    def _loop(self) -> None:
        complaint = ""
        while not self._closing.is_set():
            try:
                self.tick()
                complaint = ""
            except Exception as error:  # the database is away, or full
                if str(error) != complaint:
                    log.exception("the tasks cannot be looked at")
                complaint = str(error)
            self._waking.wait(self._seat.limits.interval_s)
            self._waking.clear()

    def _run(self, task: Task) -> None:
        work = self._works.get(task.id)
        if work is None:
            if not self._may_take(task) or (work := Work.take_over(self._seat, self._kinds[task.kind], task)) is None:
                return
            log.info("%s %s is taken over", task.kind, task.id)
            self._keep(work)
        else:
            work.tick(task)
            self._finish_if_settled(work)

    def _begin(self, task: Task) -> None:
        work = Work.begin(self._seat, self._kinds[task.kind], task)
        if work is not None:
            log.info("%s %s is begun", task.kind, task.id)
            self._keep(work)

    def _keep(self, work: Work) -> None:
        """Take care of a task from now on, beginning at once."""
        self._works[work.task.id] = work
        if work.running:
            work.tick(work.task)
        self._finish_if_settled(work)

    def _finish_if_settled(self, work: Work) -> None:
        if work.running:
            return
        self._works.pop(work.task.id, None)
        self._complaints.pop(work.task.id, None)
        log.info("%s %s is %s", work.task.kind, work.task.id, work.task.status)
        if work.task.status.finished:
            self._on_finished(work.task)

    def _may_take(self, task: Task) -> bool:
        """Whether this supervisor may take a task: it is free, it was ours, or its lease has expired."""
        if task.lease_owner in (None, self._seat.leases.owner):
            return True
        now = self._seat.monotonic()
        seen = self._sightings.get(task.id)
        if seen is None or (seen.token, seen.expires_at) != (task.token, task.lease_expires_at):
            seen = self._sightings[task.id] = _Sighting(task.token, task.lease_expires_at, now)
        return now - seen.since > self._seat.limits.lease_s

    def _beat(self) -> None:
        """Renew the leases of held tasks, three times per lease duration."""
        now = self._seat.monotonic()
        if now < self._beat_at:
            return
        self._beat_at = now + self._seat.limits.lease_s / 3
        for work in list(self._works.values()):
            self._guarded(work.task, self._seat.leases.beat)

    def _drop_lost(self, tasks: Sequence[Task]) -> None:
        """Drop tasks that another server has taken or that a client withdrew."""
        tokens = {task.id: task.token for task in tasks}
        for work in list(self._works.values()):
            if tokens.get(work.task.id) != work.task.token:
                self._drop(work.task)

    def _drop(self, task: Task) -> None:
        self._works.pop(task.id, None)
        self._complaints.pop(task.id, None)

    def _guarded(self, task: Task, act: Callable[[Task], object]) -> None:
        """Run an action on a task; after an error, the next round retries it."""
        try:
            act(task)
        except LeaseLost as lost:
            log.warning("%s", lost.message)
            self._drop(task)
        except RequestChanged:
            pass  # the next round sees it
        except Exception as error:
            if self._complaints.get(task.id) != str(error):  # not in every round
                log.exception("%s %s", task.kind, task.id)
            self._complaints[task.id] = str(error)
