"""Steps of a run in the database: appended in order, removed from the end."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from strop.store.bulk import insert_rows
from strop.store.packed import names_of, pack, width
from strop.store.prompts import add_prompts, known_prompts, repair_prompts, update_latest
from strop.store.runfiles import (
    MetricsLine,
    RolloutLine,
    Rollouts,
    components_text,
    folded,
    read_rollouts,
    step_digest,
    storable,
)
from strop.store.tables import rollouts, runs, steps
from strop.types import StopReason

_BATCH_ROLLOUTS = 4000
_BATCH_STEPS = 500
_BATCH_BYTES = 32 * 2**20


@dataclass(frozen=True)
class Step:
    """A step read from the run folder."""

    line: MetricsLine
    digest: int
    rollouts: Rollouts


def read_step(line: MetricsLine, file: Path) -> Step:
    """Read the rollouts of a line. If `file` is replaced meanwhile, the digest shows it later."""
    digest = step_digest(line.crc, file)
    return Step(line, digest, read_rollouts(file, line.step))


def batched(found: Iterable[Step]) -> Iterator[list[Step]]:
    """Group steps into batches, to keep transactions short and memory use constant."""
    batch: list[Step] = []
    lines = size = 0
    for step in found:
        batch.append(step)
        lines += len(step.rollouts.lines)
        size += sum(bytes for _, bytes in step.rollouts.places)
        if lines >= _BATCH_ROLLOUTS or size >= _BATCH_BYTES or len(batch) >= _BATCH_STEPS:
            yield batch
            batch, lines, size = [], 0, 0
    if batch:
        yield batch


class StepWriter:
    """Adds steps to one run. Use one instance for all batches of a pass: it caches known names."""

    def __init__(self, connection: Connection, run: int) -> None:
        """Read the known metrics and prompts of the run, given by its `seq`."""
        self._run = run
        self._names = names_of(connection, run)
        self._prompts = known_prompts(connection, run)

    def add(self, connection: Connection, batch: Sequence[Step], inode: int) -> None:
        """Record steps in order, with their metrics and rollouts; `inode` is that of their metrics.jsonl."""
        newest: dict[str, list[RolloutLine]] = {}
        for step in batch:
            newest |= _by_row(step.rollouts.lines)
        add_prompts(connection, self._run, self._prompts, [lines[0] for lines in newest.values()])
        insert_rows(connection, steps, [self._step_row(step) for step in batch])
        insert_rows(connection, rollouts, [row for step in batch for row in self._rollout_rows(step)])
        update_latest(connection, {self._prompts[row]: lines for row, lines in newest.items()})
        known = {"metric_names": json.dumps(self._names), "metrics_inode": inode}
        connection.execute(sa.update(runs).where(runs.c.seq == self._run).values(known))

    def _step_row(self, step: Step) -> dict[str, Any]:
        lines = step.rollouts.lines
        self._names += [name for name in step.line.metrics if name not in self._names]
        rewards = [line.reward for line in lines if line.reward is not None]
        return {
            "run": self._run,
            "step": step.line.step,
            "digest": step.digest,
            "offset": step.line.offset,
            "bytes": step.line.bytes,
            "prompts": len({line.row for line in lines}),
            "samples": len(lines),
            "failed": sum(line.failure is not None for line in lines),
            "truncated": sum(line.stop_reason == StopReason.LENGTH for line in lines),
            "reward": fmean(rewards) if rewards else None,
            "damage": step.line.damage or step.rollouts.damage,
            "metrics": pack(step.line.metrics, self._names),
        }

    def _rollout_rows(self, step: Step) -> Iterator[dict[str, Any]]:
        for line, (offset, size) in zip(step.rollouts.lines, step.rollouts.places, strict=True):
            yield {
                "run": self._run,
                "prompt": self._prompts[line.row],
                "step": line.step,
                "sample": line.sample,
                "reward": line.reward,
                "advantage": line.advantage,
                "components": components_text(line.components),
                "stop_reason": storable(line.stop_reason),
                "cause": line.cause,
                "length": line.length,
                "offset": offset,
                "bytes": size,
                "answer": line.answer,
                "search": folded(line.text),
            }


def drop_steps(connection: Connection, run: int, after: int) -> bool:
    """Delete all steps above `after`. Returns False if there are none."""
    if not connection.execute(sa.delete(steps).where(steps.c.run == run, steps.c.step > after)).rowcount:
        return False
    connection.execute(sa.delete(rollouts).where(rollouts.c.run == run, rollouts.c.step > after))
    repair_prompts(connection, run, after)
    # Names are added as steps need them, so that those which are left need the first ones.
    size = connection.scalar(sa.select(sa.func.max(sa.func.length(steps.c.metrics))).where(steps.c.run == run))
    left = json.dumps(names_of(connection, run)[: width(size or 0)])
    connection.execute(sa.update(runs).where(runs.c.seq == run).values(metric_names=left))
    return True


def _by_row(lines: Iterable[RolloutLine]) -> dict[str, list[RolloutLine]]:
    found: dict[str, list[RolloutLine]] = {}
    for line in lines:
        found.setdefault(line.row, []).append(line)
    return found
