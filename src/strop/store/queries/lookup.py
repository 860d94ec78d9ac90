"""From the names that clients use to the numbers that tables do."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy import Connection

from strop.errors import NotFound
from strop.store.tables import prompts, runs

_HIGHEST = 2**31 - 1


def sendable(text: str) -> str:
    """The text without what a database refuses: NUL and halves of characters. Nothing stored has them."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def bounded(number: int) -> int:
    """The number, or the nearest one that a column of integers can hold."""
    return max(-_HIGHEST, min(number, _HIGHEST))


def found_run(connection: Connection, run_id: str) -> int:
    """The `seq` of a run. NotFound where there is none."""
    seq = connection.scalar(sa.select(runs.c.seq).where(runs.c.id == sendable(run_id)))
    if seq is None:
        raise unknown_run(run_id)
    return int(seq)


def unknown_run(run_id: str) -> NotFound:
    """The error for a run that does not exist."""
    return NotFound(f"no run {run_id!r}", param="run_id")


def found_prompt(connection: Connection, run: int, row: str) -> int:
    """The `seq` of a prompt of a run. NotFound where the run has not drawn that row."""
    seq = connection.scalar(sa.select(prompts.c.seq).where(prompts.c.run == run, prompts.c.row == sendable(row)))
    if seq is None:
        raise NotFound(f"the run has drawn no row {row!r}", param="row")
    return int(seq)


def rollout_seq(rollout_id: str) -> int:
    """The number in `ro_<number>`. NotFound for what is no such id."""
    digits = rollout_id.removeprefix("ro_")
    if digits == rollout_id or not digits.isascii() or not digits.isdecimal() or len(digits) > 18:
        raise NotFound(f"no rollout {rollout_id!r}", param="rollout_id")
    return int(digits)
