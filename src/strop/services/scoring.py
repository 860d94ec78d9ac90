"""Trying reward functions on answers, in a process of their own and in bounded time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from strop.config import RewardConfig
from strop.errors import RewardError, Unavailable
from strop.types import Json, Row

_AT_ONCE = threading.BoundedSemaphore(2)
_PATIENCE_S = 10.0
_GRACE_S = 10.0
"""For a process to start and to end itself; after that it is killed."""


@dataclass(frozen=True)
class Case:
    """An answer to score."""

    row: Row
    answer: str


def try_rewards(
    rewards: Sequence[RewardConfig], cases: Sequence[Case], environment: Mapping[str, str], seconds: float
) -> list[dict[str, Json]]:
    """What the rewards make of each answer, in a process with this environment: see `strop.worker.trial`.

    Raises RewardError where a reward cannot be loaded, Unavailable while too many tests run.
    """
    work = {
        "rewards": [reward.model_dump(mode="json") for reward in rewards],
        "cases": [{"line": case.row.line, "fields": case.row.fields, "answer": case.answer} for case in cases],
        "seconds": seconds,
    }
    with _turn():
        code, output, errors = _run(json.dumps(work), environment, seconds + _GRACE_S)
    if code != 0:
        last = errors.strip().rpartition("\n")[2]
        raise RewardError(f"the test ended with exit code {code}: {last or 'no reason given'}", param="rewards")
    found = json.loads(output)
    if "error" in found:
        raise RewardError(found["error"], param="rewards")
    results: list[dict[str, Json]] = found["results"]
    return results


@contextmanager
def _turn() -> Iterator[None]:
    if not _AT_ONCE.acquire(timeout=_PATIENCE_S):
        raise Unavailable("other tests of rewards are running; try again in a moment", retry_after=10)
    try:
        yield
    finally:
        _AT_ONCE.release()


def _run(work: str, environment: Mapping[str, str], seconds: float) -> tuple[int, str, str]:
    """Exit code, output and errors of the process. What it started ends with it."""
    command = [sys.executable, "-m", "strop.worker.trial"]
    process = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        start_new_session=True,
    )
    with process:
        try:
            output, errors = process.communicate(work, timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise RewardError(f"the test did not end within {seconds:g} s", param="rewards") from None
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return process.returncode, output, errors
