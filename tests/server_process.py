"""`strop serve` in a process of its own, as users start it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx


@dataclass(frozen=True)
class ServerProcess:
    """A server that answers."""

    url: str
    """Without `/v1`."""
    process: subprocess.Popen[str]
    http: httpx.Client
    """Knows the address, and shows no key."""

    def stop(self) -> str:
        """End it as Ctrl-C does; what it said on standard error. It has to end well."""
        self.process.send_signal(signal.SIGINT)
        said = self.process.communicate(timeout=60)[1]
        assert self.process.returncode == 0, said
        return said

    def kill(self) -> None:
        """End it as a power cut does."""
        self.process.kill()
        self.process.wait()


def strop(*arguments: object, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    command = [sys.executable, "-m", "strop", *map(str, arguments)]
    return subprocess.run(command, env=_environment(env), capture_output=True, text=True, timeout=120, check=False)


@contextmanager
def serving(data_dir: Path, *arguments: object, env: Mapping[str, str] | None = None) -> Iterator[ServerProcess]:
    """A server on a free port; killed in the end, if it still lives."""
    command = [sys.executable, "-m", "strop", "serve", "--data-dir", str(data_dir), "--port", "0"]
    process = subprocess.Popen(
        [*command, *map(str, arguments)],
        env=_environment(env),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()  # empty where it ends before it answers
        assert line.startswith("strop is running at "), process.communicate(timeout=60)[1]
        url = line.split()[-1]
        with httpx.Client(base_url=url, timeout=30) as http:
            yield ServerProcess(url, process, http)
    finally:
        process.kill()
        process.communicate()


def _environment(env: Mapping[str, str] | None) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "160", **(env or {})}
