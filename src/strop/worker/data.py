"""The rows of a run: loaded, checked for overlap, and filtered by prompt length."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from strop.config import RunConfig
from strop.data.rows import MAX_SHOWN, fingerprint, load_files
from strop.errors import DataError
from strop.types import Row


class Prompts(Protocol):
    """Encodes prompts: see `policy.chat.ChatTemplate`."""

    def prompt_ids(self, row: Row) -> tuple[int, ...]:
        """Token ids of the row's prompt. Raises DataError if the chat template rejects a message."""


@dataclass(frozen=True)
class RunData:
    """Training and validation rows of a run."""

    train: Sequence[Row]
    validation: Sequence[Row]
    dropped: int
    """Number of training prompts above the limit."""
    fingerprint: str
    """Fingerprint of the training rows; a resume with other rows is rejected."""


def load_data(config: RunConfig, chat: Prompts, say: Callable[[str], None]) -> RunData:
    """Load the files in `[data]`, reject overlap, and drop and count prompts above the limit.

    Raises DataError if a file has faults or no training rows are left.
    """
    train, validation = load_files(config.data.train, config.data.validation)
    limit = config.sampling.max_prompt_tokens
    kept, dropped = fitting(train, config.data.train, chat, limit)
    kept_validation, dropped_validation = fitting(validation, config.data.validation or "", chat, limit)
    say(f"{len(kept)} training rows, {len(kept_validation)} validation rows")
    for count, name in ((dropped, "training"), (dropped_validation, "validation")):
        if count:
            say(f"{count} {name} prompts are longer than sampling.max_prompt_tokens = {limit}: dropped")
    if not kept:
        raise DataError(
            f"{config.data.train}: all {len(train)} prompts are longer than sampling.max_prompt_tokens = {limit}"
        )
    return RunData(kept, kept_validation, dropped, fingerprint(train))


def fitting(rows: Sequence[Row], file: str, chat: Prompts, limit: int) -> tuple[list[Row], int]:
    """The rows whose prompt has at most `limit` tokens, and the number of rows above it.

    Raises DataError that lists the rows whose messages the chat template rejects.
    """
    kept: list[Row] = []
    faults: list[str] = []
    for row in rows:
        try:
            if len(chat.prompt_ids(row)) <= limit:
                kept.append(row)
        except DataError as error:
            faults.append(f"{file}: {error.message}")
    if faults:
        more = [f"{file}: and {len(faults) - MAX_SHOWN} more"] if len(faults) > MAX_SHOWN else []
        raise DataError("\n".join(faults[:MAX_SHOWN] + more))
    return kept, len(rows) - len(kept)
