"""How the process of a reward function is started, what it gets to see, and how it is ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import site
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from strop.errors import RewardError

PACKAGE_ROOT = str(Path(__file__).parents[2])
# The root goes to the end of the path: it must not hide a module of the user's.
START_RUNNER = "import sys; sys.path.append(sys.argv.pop(1)); from strop.rewards.process_main import main; main()"


@dataclass(frozen=True)
class Command:
    """A process to start."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    folder: Path
    """Working folder."""


class Sandbox(Protocol):
    """One way to start reward processes; stronger ones than `ProcessGroup` can take its place."""

    def start(self, command: Command, channel: int, output: int) -> subprocess.Popen[bytes]:
        """Start a process that leads a process group of its own.

        It inherits the socket `channel` under the same number, writes its standard output
        and error to `output`, and has no other open file.
        """


class ProcessGroup:
    """A process of its own session and group; it limits itself as its first act (`process_main.confine`).

    This bounds accidents: hangs, crashes, memory, left-over children. It is no wall against
    code that wants to do harm, which can still read files and use the network.
    """

    def start(self, command: Command, channel: int, output: int) -> subprocess.Popen[bytes]:
        """Must run in a thread that outlives the process: the kernel ends the process with that thread."""
        return subprocess.Popen(
            command.argv,
            env=command.env,
            cwd=command.folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=(channel,),
            start_new_session=True,
        )


def runner_argv(channel: int, memory_mb: int) -> tuple[str, ...]:
    """Command line of a reward process in this interpreter.

    Not `-I`: that would ignore PYTHONHASHSEED too, and the same call would give other
    values in another process wherever it walks over a set. The environment is clean anyway.
    """
    return (sys.executable, "-P", "-u", "-c", START_RUNNER, PACKAGE_ROOT, str(channel), str(memory_mb * 2**20))


def named_variables(names: tuple[str, ...], reward: str) -> dict[str, str]:
    """Values of the variables that the configuration names. Raises RewardError if one is not set."""
    missing = [name for name in names if name not in os.environ]
    if missing:
        raise RewardError(
            f"reward {reward!r}: environment variable {', '.join(missing)} is not set; "
            "set it, or take it out of the reward's `env`",
            param="rewards.env",
        )
    return {name: os.environ[name] for name in names}


def clean_environment(named: Mapping[str, str], home: str) -> dict[str, str]:
    """All that a reward process sees: the named variables, and the few that programs need to run."""
    env = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": home,
        "TMPDIR": home,
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "PYTHONUTF8": "1",
        "PYTHONHASHSEED": "0",
        # Threads of numeric libraries would fight over the cores, and eat address space.
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MALLOC_ARENA_MAX": "2",
    }
    if "TZ" in os.environ:
        env["TZ"] = os.environ["TZ"]
    if site.ENABLE_USER_SITE:
        # With another HOME, packages from `pip install --user` would be out of reach.
        env["PYTHONUSERBASE"] = site.getuserbase()
    return env | dict(named)


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and all of its group, unless it has been waited for: its number may be another's by now."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)


async def end_group(process: subprocess.Popen[bytes]) -> int:
    """Kill a process with its group and return its exit status: its own, if it had ended by itself."""
    kill_group(process)
    return await asyncio.to_thread(process.wait)
