"""Where the processes of tasks run: on this machine now, on a cluster by another `Launcher` later."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import psutil

from strop.errors import RunError
from strop.jobs.process import TRAIN, start_worker
from strop.store.taskdir import TaskDir

UNKNOWN_EXIT = 256
"""Stands for the exit status of a process that is not our child: no real one is as high."""


class Unreachable(RunError):
    """A task is worked on, but by no process that could be watched or stopped from here."""


_TICK_S = 0.02
"""How exactly the system knows when a process was started."""


@dataclass(frozen=True)
class Process:
    """A process that works on a task."""

    pid: int
    started_at: float
    """Seconds since 1970, for people: a clock that was moved makes another number of it."""


class Launcher(Protocol):
    """Starts, finds, watches and stops the processes of tasks of one kind."""

    def launch(self, folder: Path, env: Mapping[str, str], token: int) -> Process:
        """Start a process that outlives this one. Raises OSError if that fails."""

    def find(self, folder: Path, known: Process | None = None) -> Process | None:
        """The process that works on a task now, independent of who started it; or `known`, an
        earlier launch, if that is about to start work.

        Raises Unreachable if such a process cannot be reached from here.
        """

    def poll(self, process: Process) -> int | None:
        """None while it lives; then its exit status, negative for a signal, or UNKNOWN_EXIT."""

    def stop(self, process: Process, now: bool) -> None:
        """Ask it to save its work and exit, or kill it at once. No error if it has exited."""


@dataclass(frozen=True)
class _Found:
    """A process that another server started."""

    task: TaskDir
    handle: psutil.Process

    @property
    def lives(self) -> bool:
        """Whether it is there, and what we take it for."""
        if self.task.process_id() == self.handle.pid:
            return True
        try:  # it may not have the lock yet, or not any more
            return self.handle.is_running() and str(self.task.path) in self.handle.cmdline()
        except psutil.Error:
            return False


class LocalLauncher:
    """Processes of this machine. The lock of a folder says who works on its task: it goes with its
    process, and no number that the system gave out again can stand in for it."""

    def __init__(self, command: Sequence[str] = TRAIN) -> None:
        self._command = command
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._found: dict[int, _Found] = {}

    def launch(self, folder: Path, env: Mapping[str, str], token: int) -> Process:
        """Start the command with the folder and `--token N` behind it."""
        child = start_worker(folder, token=token, env=env, command=self._command)
        self._children[child.pid] = child
        return _process(psutil.Process(child.pid))  # there until it is polled, even if it has ended

    def find(self, folder: Path, known: Process | None = None) -> Process | None:
        """The process that holds the lock of the folder; or `known`, on its way there."""
        task = TaskDir(folder)
        pid = task.process_id()
        if pid is None:
            return known if known and self._is_there(task, known) else None
        if pid in self._children:
            return _process(psutil.Process(pid))
        try:
            found = self._found[pid] = _Found(task, psutil.Process(pid))
            return _process(found.handle)
        except psutil.NoSuchProcess:
            if task.process_id() is None:
                return None
            raise Unreachable(f"{folder} is in use by process {pid}, which is not on this machine") from None

    def poll(self, process: Process) -> int | None:
        """Of a child by waiting for it; of another process by the lock of its folder."""
        child = self._children.get(process.pid)
        if child is not None:
            code = child.poll()
            if code is not None:
                del self._children[process.pid]
            return code
        found = self._found.get(process.pid)
        if found is not None and found.lives:
            return None
        self._found.pop(process.pid, None)
        return UNKNOWN_EXIT

    def stop(self, process: Process, now: bool) -> None:
        """SIGTERM, or SIGKILL. A process that merely has the same number is left alone."""
        number = signal.SIGKILL if now else signal.SIGTERM
        child = self._children.get(process.pid)
        if child is not None:
            child.send_signal(number)  # which sends nothing once it was waited for
            return
        found = self._found.get(process.pid)
        if found is not None and found.lives:
            with suppress(psutil.NoSuchProcess):
                found.handle.send_signal(number)

    def _is_there(self, task: TaskDir, known: Process) -> bool:
        if known.pid in self._children:
            return self._children[known.pid].poll() is None
        try:
            found = _Found(task, psutil.Process(known.pid))
            if abs(found.handle.create_time() - known.started_at) > _TICK_S or not found.lives:
                return False
        except psutil.Error:
            return False
        self._found[known.pid] = found
        return True


def _process(handle: psutil.Process) -> Process:
    return Process(handle.pid, handle.create_time())
