"""Convert public ids to internal row numbers."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy import Connection

from strop.errors import NotFound
from strop.store.tables import prompts, runs

_HIGHEST = 2**31 - 1


def sendable(text: str) -> str:
    """Remove characters that a database rejects: NUL and lone surrogates. Stored text never contains them."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def bounded(number: int) -> int:
    """The number, clamped to the range of an integer column."""
    return max(-_HIGHEST, min(number, _HIGHEST))


def found_run(connection: Connection, run_id: str) -> int:
    """The `seq` of a run. Raises NotFound for an unknown id."""
    seq = connection.scalar(sa.select(runs.c.seq).where(runs.c.id == sendable(run_id)))
    if seq is None:
        raise unknown_run(run_id)
    return int(seq)


def unknown_run(run_id: str) -> NotFound:
    """The NotFound error for an unknown run."""
    return NotFound(f"no run {run_id!r}", param="run_id")


def found_prompt(connection: Connection, run: int, row: str) -> int:
    """The `seq` of a prompt of a run. Raises NotFound if the run has not used that row."""
    seq = connection.scalar(sa.select(prompts.c.seq).where(prompts.c.run == run, prompts.c.row == sendable(row)))
    if seq is None:
        raise NotFound(f"the run has drawn no row {row!r}", param="row")
    return int(seq)


def rollout_seq(rollout_id: str) -> int:
    """The number in `ro_<number>`. Raises NotFound for any other text."""
    digits = rollout_id.removeprefix("ro_")
    if digits == rollout_id or not digits.isascii() or not digits.isdecimal() or len(digits) > 18:
        raise NotFound(f"no rollout {rollout_id!r}", param="rollout_id")
    return int(digits)
