"""Helpers: evaluations, and what runs them without a model."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from job_cases import FixedSecrets, NoIngester, until

from strop.jobs.evaluating import Evaluating
from strop.jobs.evaluations import Evaluation, EvaluationQueue, NewEvaluation
from strop.jobs.kind import Tools
from strop.jobs.launcher import LocalLauncher, Process
from strop.jobs.states import Limits
from strop.jobs.supervisor import Supervisor
from strop.store.datafolder import DataFolder

QUICK = Limits(backoff_s=0.01, grace_s=0.2, interval_s=0.01)


class ReapingLauncher(LocalLauncher):
    """Knows what it started, so that nothing of it outlives a test."""

    every: ClassVar[list[ReapingLauncher]] = []

    def __init__(self, command: list[str]) -> None:
        super().__init__(command)
        self._started: list[Process] = []
        self.every.append(self)

    def launch(self, run_folder: Path, env: Mapping[str, str], token: int) -> Process:
        """Start one, and remember it."""
        self._started.append(super().launch(run_folder, env, token))
        return self._started[-1]

    def ended(self, process: Process) -> bool:
        """Whether it has."""
        return self.poll(process) is not None

    @classmethod
    def reap(cls) -> None:
        """End every process that is left."""
        for launcher in cls.every:
            for process in launcher._started:
                launcher.stop(process, now=True)
                until(partial(launcher.ended, process))
        cls.every.clear()


def new_evaluation(title: str = "case", samples: int = 2, **model: Any) -> NewEvaluation:
    """What a client asks for."""
    rewards = [{"name": "exact", "source": "../../rewards/rw_1/1/reward.py:grade", "env": []}]
    spec = {
        "model": {"kind": "base", "source": "tiny", **model},
        "data": "../../files/file-1",
        "limit": None,
        "config": {"rewards": rewards, "eval": {"samples": samples, "temperature": 1.0}},
    }
    return NewEvaluation(title, "tiny", spec)


def plan(folder: Path, rows: int = 4, ends: list[dict[str, Any]] | None = None) -> list[str]:
    """The command of an evaluator that goes by a plan: see evaluator.py."""
    file = folder / "plan.json"
    file.write_text(json.dumps({"rows": rows, "ends": ends or []}))
    return [sys.executable, str(Path(__file__).with_name("evaluator.py")), str(file)]


def supervisor(
    queue: EvaluationQueue,
    folder: DataFolder,
    command: list[str],
    secrets: dict[str, str] | None = None,
    ready: Callable[[str], bool] = lambda name: True,
    **options: Any,
) -> Supervisor:
    """What runs the evaluations of a queue."""
    tools = Tools(queue.database, folder, FixedSecrets(secrets), NoIngester(), ready)
    return Supervisor(tools, {"evaluation": Evaluating(tools, ReapingLauncher(command))}, limits=QUICK, **options)


@contextmanager
def running(queue: EvaluationQueue, folder: DataFolder, command: list[str], **options: Any) -> Iterator[Supervisor]:
    """A supervisor at work in its thread."""
    runner = supervisor(queue, folder, command, **options)
    runner.start()
    try:
        yield runner
    finally:
        runner.close()


def ended(queue: EvaluationQueue, evaluation: Evaluation) -> Evaluation:
    """The evaluation, once nothing more happens to it."""

    def look() -> Evaluation | None:
        found = queue.get(evaluation.id)
        return found if found.status.finished and found.pid is None and not found.requested else None

    found: Evaluation = until(look)
    return found


def launches(queue: EvaluationQueue, evaluation: Evaluation) -> list[dict[str, Any]]:
    """A line for each process that had the folder."""
    file = queue.folder(evaluation).path / "launches"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
