"""Evaluation of models on held-out rows, for the command line or as a process with an evaluation folder."""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

import torch

from strop.config import RunConfig
from strop.data.rows import load_rows
from strop.errors import StropError, TooManyFailures
from strop.evals.report import report, row_result
from strop.evals.run import Evaluation, evaluate, measure
from strop.evals.spec import EvaluationSpec, Target, read_spec
from strop.rewards.scorer import Scorer
from strop.store.evaldir import EvaluationDir
from strop.store.rollout_lines import group_lines, read_group
from strop.store.rundir import RunState
from strop.types import Group, Json, Row
from strop.worker.targets import EvalTarget, open_target

_STATUS_EVERY_S = 0.5
_LOOK_EVERY_S = 0.1


class Display(Protocol):
    """Receives the progress of an evaluation."""

    def say(self, line: str) -> None:
        """Report a status line."""

    def start(self, label: str, rows: int) -> None:
        """Start the progress of the next model with its number of rows."""

    def group(self, group: Group) -> None:
        """Report the scored rollouts of a row."""


def evaluate_models(
    targets: Sequence[Target], data: Path, config: RunConfig, limit: int | None, display: Display
) -> dict[str, Evaluation]:
    """Evaluations by label, all on the same rows with the same random numbers.

    Raises StropError if a model, the data or a reward cannot be used, and TooManyFailures if more groups failed than
    `train.max_failed_groups` allows.
    """
    rows = load_rows(data)[:limit]
    return asyncio.run(_evaluate_all(targets, data, rows, config, display))


async def _evaluate_all(
    targets: Sequence[Target], data: Path, rows: Sequence[Row], config: RunConfig, display: Display
) -> dict[str, Evaluation]:
    evaluations: dict[str, Evaluation] = {}
    async with Scorer.from_config(config.rewards) as scorer:
        for target in targets:
            async with open_target(target, rows, str(data), config, display.say, guarded=False) as opened:
                display.start(opened.label, len(opened.rows))
                found = await evaluate(opened.rows, config, opened.player, scorer, display.group)
            _refuse_failures(found.groups, config.train.max_failed_groups)
            evaluations[opened.label] = found
    return evaluations


def evaluate_folder(path: Path, should_stop: Callable[[], bool], token: int | None = None) -> int:
    """Run the evaluation described by a folder's spec.json, continuing an earlier process. Returns the exit code:

    0 if it finished or was asked to stop, 1 if it failed, with the reason in the status.
    """
    folder = EvaluationDir.open(path)
    with folder.lock(token):
        try:
            folder.set_status(RunState.STARTING, message="loading")
            spec = read_spec(folder.spec(), folder.path)
            done = asyncio.run(_evaluate(folder, spec, should_stop))
            folder.set_status(RunState.SUCCEEDED if done else RunState.PAUSED)
            return 0
        except Exception as error:
            return _fail(folder, error)


async def _evaluate(folder: EvaluationDir, spec: EvaluationSpec, should_stop: Callable[[], bool]) -> bool:
    """Whether it finished; False if it was asked to stop."""
    rows = load_rows(spec.data)[: spec.limit]
    config = spec.config

    def say(line: str) -> None:
        print(line, flush=True)
        folder.set_status(RunState.STARTING, message=line)

    async with (
        Scorer.from_config(config.rewards) as scorer,
        open_target(spec.target, rows, spec.data, config, say, guarded=True) as opened,
    ):
        progress = _Progress(folder, opened, config.eval.samples)
        left = [row for row in opened.rows if row.id not in progress.groups]
        work = evaluate(left, config, opened.player, scorer, progress.take)
        if not await _unless_stopped(work, should_stop, progress.tell):
            return False
    groups = [progress.groups[row.id] for row in opened.rows]
    _refuse_failures(groups, config.train.max_failed_groups)
    folder.write_metrics(_figures(groups, config.eval.pass_threshold))
    return True


class _Progress:
    """Writes each group and the progress into the folder."""

    def __init__(self, folder: EvaluationDir, opened: EvalTarget, samples: int) -> None:
        self._folder = folder
        self._started = self._told = time.monotonic()
        self._total = len(opened.rows)
        rows = {row.id: row for row in opened.rows}
        self.groups: dict[str, Group] = {
            row: read_group(rows[row], lines) for row, lines in folder.keep_complete(rows, samples).items()
        }
        self._before = len(self.groups)
        self._tell(model=opened.label)

    def take(self, group: Group) -> None:
        """Store the rollouts of a row durably."""
        self._folder.append(group_lines(group))
        self.groups[group.row.id] = group

    def tell(self) -> None:
        """Write the progress if it has changed, at a limited rate."""
        news = len(self.groups) - self._said
        if news and (len(self.groups) == self._total or time.monotonic() - self._told > _STATUS_EVERY_S):
            self._tell()

    def _tell(self, **more: Json) -> None:
        self._told = time.monotonic()
        self._said = done = len(self.groups)
        self._folder.set_status(
            RunState.RUNNING,
            rows_done=done,
            rows_failed=sum(group.failure is not None for group in self.groups.values()),
            rows_total=self._total,
            rows_per_second=round((done - self._before) / max(self._told - self._started, 1e-3), 3),
            **more,
        )


async def _unless_stopped(
    work: Coroutine[Any, Any, object], should_stop: Callable[[], bool], meanwhile: Callable[[], None]
) -> bool:
    """Whether the work finished. Its exceptions are raised."""
    task = asyncio.create_task(work)
    while not task.done():
        if should_stop():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return False
        await asyncio.wait([task], timeout=_LOOK_EVERY_S)
        meanwhile()
    task.result()
    return True


def _figures(groups: Sequence[Group], threshold: float) -> Mapping[str, Json]:
    return {
        "metrics": measure(groups, threshold),
        "report": asdict(report(row_result(group, threshold) for group in groups)),
    }


def _refuse_failures(groups: Sequence[Group], allowed: float) -> None:
    """Results over only the rows that succeeded would be misleading."""
    failures = [group.failure for group in groups if group.failure]
    if len(failures) > allowed * len(groups):
        raise TooManyFailures(
            f"{len(failures)} of {len(groups)} rows could not be scored; first failure: {failures[0].message}\n"
            f"{failures[0].detail}".rstrip()
        )


def _fail(folder: EvaluationDir, error: Exception) -> int:
    """Record the failure. Only an unexpected error is printed with its traceback."""
    if isinstance(error, StropError):
        message = error.message
    elif isinstance(error, torch.OutOfMemoryError | MemoryError):
        message = f"out of memory: {error}\nLower sampling.max_concurrent, then resume"
    else:
        message = str(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
        traceback.print_exception(error)
    print(message, flush=True)
    with suppress(OSError):  # the disk may be full
        folder.set_status(RunState.FAILED, message=message)
    return 1
