"""Facts about a run from its folder: configuration, status, checkpoints."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from strop.errors import ConfigError
from strop.store.ids import checkpoint_id
from strop.store.rundir import RunDir, RunState
from strop.types import Json

INTERRUPTED = "interrupted"
"""State of a run whose status is running but that has no process."""

_Found = TypeVar("_Found")


class _Status(msgspec.Struct):
    state: RunState = RunState.STARTING
    step: int = 0
    total_steps: int | None = None
    phase: str | None = None
    message: str | None = None
    updated_at: datetime | None = None


class _Entry(msgspec.Struct):
    step: int
    path: str
    size: int
    state: str = "complete"
    validation_reward: float | None = None
    created_at: datetime | None = None


class _Checkpoints(msgspec.Struct):
    latest: int | None = None
    best: int | None = None
    checkpoints: list[_Entry] = []


def read_config_facts(run: RunDir) -> dict[str, Json]:
    """Columns of a run from its configuration. Raises ConfigError if it cannot be read."""
    config = run.config()
    return {
        "name": config.name,
        "model": config.model,
        "config": config.model_dump_json(),
        "created_at": run.config_file.stat().st_mtime,
    }


def read_facts(run: RunDir, problems: list[str]) -> dict[str, Json]:
    """Columns of a run from its files. Unreadable files are skipped and reported in `problems`."""
    facts: dict[str, Json] = {}
    with noted(run, problems):
        facts |= read_config_facts(run)
    with noted(run, problems):
        facts |= _status(run)
    with noted(run, problems):
        facts["facts"] = json.dumps(_read(run.facts_file, dict[str, Any]) or {})
    return facts


def read_checkpoints(run: RunDir, run_id: str) -> list[dict[str, Json]]:
    """The run's checkpoints, as rows without `run`. Raises the errors that `noted` catches."""
    status = _read(run.checkpoint_status_file, _Checkpoints) or _Checkpoints()
    return [
        {
            "id": checkpoint_id(run_id, entry.step),
            "created_at": entry.created_at.timestamp() if entry.created_at else 0.0,
            "step": entry.step,
            "path": entry.path,
            "bytes": entry.size,
            "validation_reward": entry.validation_reward,
            "state": entry.state,
            "latest": entry.step == status.latest,
            "best": entry.step == status.best,
        }
        for entry in status.checkpoints
    ]


@contextmanager
def noted(run: RunDir, problems: list[str]) -> Iterator[None]:
    """Record the errors of reading a file instead of raising them."""
    try:
        yield
    except ConfigError as error:
        problems.append(error.message)
    except OSError as error:
        problems.append(f"{error.filename or run.path}: {error.strerror}")


def _status(run: RunDir) -> dict[str, Json]:
    status = _read(run.status_file, _Status) or _Status()
    interrupted = status.state.active and not run.locked()
    updated = status.updated_at.timestamp() if status.updated_at else run.config_file.stat().st_mtime
    return {
        "state": INTERRUPTED if interrupted else str(status.state),
        "phase": status.phase,
        "message": status.message,
        "step": status.step,
        "total_steps": status.total_steps,
        "updated_at": updated,
    }


def _read(file: Path, kind: type[_Found]) -> _Found | None:
    """The JSON content of a file; None if the file is missing."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except (msgspec.MsgspecError, ValueError) as error:
        raise OSError(0, f"damaged: {error}", str(file)) from None
