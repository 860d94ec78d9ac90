"""The rows of a run: loaded, checked against each other, and fitted to the model."""

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
        """Ids of the row's prompt. DataError where the chat template refuses a message."""


@dataclass(frozen=True)
class RunData:
    """What a run trains and validates on."""

    train: Sequence[Row]
    validation: Sequence[Row]
    dropped: int
    """Training prompts over the limit."""
    fingerprint: str
    """Of the training file: another one on resuming is refused."""


def load_data(config: RunConfig, chat: Prompts, say: Callable[[str], None]) -> RunData:
    """Load the files of `[data]`, refuse overlap, drop and count prompts over the limit.

    DataError when a file has faults, or nothing is left to train on.
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
    """The rows whose prompt has at most `limit` tokens, and how many have more.

    DataError lists the rows whose messages the chat template refuses.
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
