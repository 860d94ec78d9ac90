"""Incremental ingest of run folders into the database.

The folder is the source of truth and the database a copy. A step counts once its line is in metrics.jsonl; its
rollouts file is written before that. Each step is written in one transaction with its metrics and rollouts, and the
last stored step tells where to continue reading, so a process that is killed at any time loses nothing. A resumed
run rewrites metrics.jsonl; the steps are then compared one by one, and those that differ are dropped and read again.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import sqlalchemy as sa
from sqlalchemy import Connection

from strop.errors import NotFound, RunError, StropError
from strop.store import ids
from strop.store.datafolder import DataFolder
from strop.store.db import Database
from strop.store.queries.curves import newest_metrics
from strop.store.queries.lookup import unknown_run
from strop.store.rundir import RunDir
from strop.store.runfacts import noted, read_checkpoints, read_config_facts, read_facts
from strop.store.runfiles import MetricsLine, read_metrics, step_digest
from strop.store.steps import StepWriter, batched, drop_steps, read_step
from strop.store.tables import checkpoints, runs, steps
from strop.types import Json

_log = logging.getLogger(__name__)

_PATIENCE_S = 2.0

Stamps = tuple[object, ...]

_DAMAGE = sa.select(steps.c.damage).where(steps.c.damage.is_not(None)).order_by(steps.c.step).limit(1)
_CHECKPOINTS = sa.select(*(column for column in checkpoints.c if column.name not in ("seq", "run"))).order_by(
    checkpoints.c.step
)


@dataclass
class _Known:
    """A run in the database, with the state of its files at the last read."""

    id: str
    seq: int
    run: RunDir
    seen: Stamps | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


class Ingester:
    """Keeps the runs in a database up to date. Thread-safe."""

    def __init__(self, database: Database, data_folder: Path) -> None:
        """Stored paths are relative to `data_folder`."""
        self._database = database
        self._data = DataFolder(data_folder.resolve())
        self._runs: dict[str, _Known] = {}

    def import_run(self, path: Path) -> str:
        """Import a run folder from any location. Returns the run's id, which is the same each time.

        Raises RunError if the folder is not a run, ConfigError if its configuration cannot be read.
        """
        run = RunDir.open(path.resolve())
        stored = self._data.stored(run.path)
        if not stored.isprintable():
            raise RunError(f"{stored!r}: the folder name is not valid Unicode; rename it")
        name = ids.run_id(stored)
        facts = read_config_facts(run)
        new = {"id": name, "path": stored, "state": "starting", "updated_at": facts["created_at"], **facts}
        with self._database.write() as connection:
            if connection.scalar(sa.select(runs.c.seq).where(runs.c.id == name)) is None:
                connection.execute(sa.insert(runs).values(new))
        self.refresh(name)
        return name

    def discover(self) -> list[str]:
        """Import the run folders in the data folder if the database has no runs. Returns their ids.

        This is only done for a new database: later, a folder without a stored run is a run that was deleted from the
        lists.
        """
        with self._database.read() as connection:
            if connection.scalar(sa.select(runs.c.seq).limit(1)) is not None:
                return []
        found = sorted(self._data.runs.glob("*/config.toml"))
        return [name for file in found for name in self._try_import(file.parent)]

    def refresh(self, run_id: str) -> bool:
        """Ingest new data of a run. Returns whether anything changed.

        Damaged or missing files are reported in the run's `message`, never raised. Raises NotFound for an unknown
        id. Does nothing while another thread ingests the run.
        """
        known = self._find(run_id)
        if not known.lock.acquire(timeout=_PATIENCE_S):
            return False
        try:
            if self._runs.get(run_id) is not known:
                raise unknown_run(run_id)
            stamps = _stamps(known.run)
            if stamps == known.seen:
                return False
            problems: list[str] = []
            changed = self._take_in(known, problems)
            known.seen = None if problems else stamps
            return changed
        finally:
            known.lock.release()

    def refresh_all(self) -> list[str]:
        """Refresh all runs. Returns the ids of those that changed. Cheap for runs with unchanged files."""
        with self._database.read() as connection:
            names = list(connection.scalars(sa.select(runs.c.id).order_by(runs.c.seq)))
        return [name for name in names if self._try_refresh(name)]

    def forget(self, run_id: str) -> None:
        """Delete a run from the database. Its files are kept."""
        known = self._find(run_id)
        with known.lock:
            with self._database.write() as connection:
                connection.execute(sa.delete(runs).where(runs.c.seq == known.seq))
            self._runs.pop(run_id, None)

    def folder(self, run_id: str) -> Path:
        """Path of the run folder. Raises NotFound for an unknown id."""
        return self._find(run_id).run.path

    def _find(self, name: str) -> _Known:
        if name not in self._runs:
            with self._database.read() as connection:
                row = connection.execute(sa.select(runs.c.seq, runs.c.path).where(runs.c.id == name)).first()
            if row is None:
                raise unknown_run(name)
            self._runs.setdefault(name, _Known(name, row.seq, RunDir(self._data.found(row.path))))
        return self._runs[name]

    def _try_import(self, path: Path) -> Iterator[str]:
        try:
            yield self.import_run(path)
        except StropError as error:
            _log.warning("%s is left out: %s", path, error.message)

    def _try_refresh(self, name: str) -> bool:
        try:
            return self.refresh(name)
        except NotFound:  # forgotten meanwhile
            return False

    def _take_in(self, known: _Known, problems: list[str]) -> bool:
        if not known.run.config_file.is_file():
            problems.append(f"{known.run.path} is gone; bring the folder back, or delete the run")
            return self._update(known, {}, None, problems)
        changed = False
        with noted(known.run, problems):
            changed = self._take_steps(known)
        found = None
        with noted(known.run, problems):
            found = read_checkpoints(known.run, known.id)
        return self._update(known, read_facts(known.run, problems), found, problems) or changed

    def _take_steps(self, known: _Known) -> bool:
        """Drop steps that have changed and add new ones."""
        if not known.run.metrics_file.exists():
            with self._database.write(durable=False) as connection:
                return drop_steps(connection, known.seq, after=-1)
        with open(known.run.metrics_file, "rb") as file:
            inode = os.fstat(file.fileno()).st_ino
            changed, after, start = self._resume(known, file, inode)
            lines = read_metrics(file, start, after)
            found = (read_step(line, known.run.rollout_file(line.step)) for line in lines)
            writer = None
            for batch in batched(found):
                with self._database.write(durable=False) as connection:
                    writer = writer or StepWriter(connection, known.seq)
                    writer.add(connection, batch, inode)
            return changed or writer is not None

    def _resume(self, known: _Known, file: BinaryIO, inode: int) -> tuple[bool, int, int]:
        """Whether steps were dropped, the last valid step, and the offset of the next line."""
        query = sa.select(steps.c.step, steps.c.digest, steps.c.offset, steps.c.bytes).where(steps.c.run == known.seq)
        with self._database.read() as connection:
            last = connection.execute(query.order_by(steps.c.step.desc()).limit(1)).first()
            same = inode == connection.scalar(sa.select(runs.c.metrics_inode).where(runs.c.seq == known.seq))
            if last is None:
                return False, -1, 0
            if same and _matches(known.run, last, next(read_metrics(file, last.offset, last.step - 1), None)):
                return False, last.step, last.offset + last.bytes
            stored = connection.execute(query.order_by(steps.c.step)).all()
        after, start = -1, 0
        for row, line in zip(stored, read_metrics(file, 0, -1), strict=False):
            if not _matches(known.run, row, line):
                break
            after, start = line.step, line.end
        with self._database.write(durable=False) as connection:
            dropped = drop_steps(connection, known.seq, after)
            connection.execute(sa.update(runs).where(runs.c.seq == known.seq).values(metrics_inode=inode))
        return dropped, after, start

    def _update(
        self, known: _Known, facts: dict[str, Json], found: list[dict[str, Json]] | None, problems: list[str]
    ) -> bool:
        """Update the run's own row; without `found`, its checkpoints are not changed."""
        with self._database.read() as connection:
            newest = newest_metrics(connection, known.seq, ("reward", "validation/reward"))
            damage = connection.scalar(_DAMAGE.where(steps.c.run == known.seq))
            message = "\n".join(part for part in (facts.get("message"), *problems, damage) if part) or None
            rewards = {"reward": newest.get("reward"), "validation_reward": newest.get("validation/reward")}
            new = {**facts, **rewards, "message": message}
            row = connection.execute(sa.select(runs).where(runs.c.seq == known.seq)).mappings().one()
            held = connection.execute(_CHECKPOINTS.where(checkpoints.c.run == known.seq)).mappings().all()
        changes = {name: value for name, value in new.items() if row[name] != value}
        moved = found is not None and [dict(entry) for entry in held] != found
        if changes or moved:
            with self._database.write(durable=False) as connection:
                if changes:
                    connection.execute(sa.update(runs).where(runs.c.seq == known.seq).values(changes))
                if moved:
                    _replace_checkpoints(connection, known.seq, found or [])
        return bool(changes) or moved


def _matches(run: RunDir, row: Any, line: MetricsLine | None) -> bool:
    """Whether a stored step still matches the files."""
    if line is None or (row.step, row.offset) != (line.step, line.offset):
        return False
    return bool(row.digest == step_digest(line.crc, run.rollout_file(line.step)))


def _replace_checkpoints(connection: Connection, run: int, found: list[dict[str, Json]]) -> None:
    connection.execute(sa.delete(checkpoints).where(checkpoints.c.run == run))
    if found:
        connection.execute(sa.insert(checkpoints), [{"run": run, **entry} for entry in found])


def _stamps(run: RunDir) -> Stamps:
    """State of the run's files, and whether a process is training it."""
    files = (run.config_file, run.status_file, run.facts_file, run.metrics_file, run.checkpoint_status_file)
    try:
        trained: bool | None = run.locked()
    except OSError:
        trained = None
    return (*map(_stamp, files), trained)


def _stamp(file: Path) -> object:
    try:
        stat = file.stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns
