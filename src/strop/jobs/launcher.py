"""Where training processes run: on this machine now, on a cluster by another `Launcher` later."""

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
from strop.store.rundir import RunDir

UNKNOWN_EXIT = 256
"""Stands for the exit status of a process that is not our child: no real one is as high."""


class Unreachable(RunError):
    """A run is being trained, but by no process that could be watched or stopped from here."""


_TICK_S = 0.02
"""How exactly the system knows when a process was started."""


@dataclass(frozen=True)
class Process:
    """A training process."""

    pid: int
    started_at: float
    """Seconds since 1970, for people: a clock that was moved makes another number of it."""


class Launcher(Protocol):
    """Starts, finds, watches and stops the training processes of runs."""

    def launch(self, run_folder: Path, env: Mapping[str, str], token: int) -> Process:
        """Start one. It outlives this process. OSError where that is not possible."""

    def find(self, run_folder: Path, known: Process | None = None) -> Process | None:
        """The one that trains a run at this moment, whoever started it; or `known`, as it was once
        launched, if that is about to.

        Raises Unreachable where one trains it that is out of our reach.
        """

    def poll(self, process: Process) -> int | None:
        """None while it lives; then its exit status, negative for a signal, or UNKNOWN_EXIT."""

    def stop(self, process: Process, now: bool) -> None:
        """Ask it to save a checkpoint and end, or end it at once. No error where it has ended."""


@dataclass(frozen=True)
class _Found:
    """A process that another server started."""

    run: RunDir
    handle: psutil.Process

    @property
    def lives(self) -> bool:
        """Whether it is there, and what we take it for."""
        if self.run.trainer() == self.handle.pid:
            return True
        try:  # it may not have the lock yet, or not any more
            return self.handle.is_running() and str(self.run.path) in self.handle.cmdline()
        except psutil.Error:
            return False


class LocalLauncher:
    """Processes of this machine. A run's lock says who trains it: it goes with its process, and no
    number that the system gave out again can stand in for it."""

    def __init__(self, command: Sequence[str] = TRAIN) -> None:
        self._command = command
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._found: dict[int, _Found] = {}

    def launch(self, run_folder: Path, env: Mapping[str, str], token: int) -> Process:
        """Start `python -m strop.worker train RUN --token N`."""
        child = start_worker(run_folder, token=token, env=env, command=self._command)
        self._children[child.pid] = child
        return _process(psutil.Process(child.pid))  # there until it is polled, even if it has ended

    def find(self, run_folder: Path, known: Process | None = None) -> Process | None:
        """The process that holds the lock of the run; or `known`, on its way there."""
        run = RunDir(run_folder)
        pid = run.trainer()
        if pid is None:
            return known if known and self._is_there(run, known) else None
        if pid in self._children:
            return _process(psutil.Process(pid))
        try:
            found = self._found[pid] = _Found(run, psutil.Process(pid))
            return _process(found.handle)
        except psutil.NoSuchProcess:
            if run.trainer() is None:
                return None
            raise Unreachable(f"{run_folder} is being trained by process {pid}, which is not on this machine") from None

    def poll(self, process: Process) -> int | None:
        """Of a child by waiting for it; of another process by the lock of its run."""
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

    def _is_there(self, run: RunDir, known: Process) -> bool:
        if known.pid in self._children:
            return self._children[known.pid].poll() is None
        try:
            found = _Found(run, psutil.Process(known.pid))
            if abs(found.handle.create_time() - known.started_at) > _TICK_S or not found.lives:
                return False
        except psutil.Error:
            return False
        self._found[known.pid] = found
        return True


def _process(handle: psutil.Process) -> Process:
    return Process(handle.pid, handle.create_time())
