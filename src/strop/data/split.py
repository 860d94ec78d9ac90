"""Split rows into training and held-out rows by prompt."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from strop.data.rows import prompt_digest
from strop.errors import InvalidRequest
from strop.types import Row


def held_out_lines(rows: Sequence[Row], share: float, seed: int) -> frozenset[int]:
    """Line numbers of the held-out rows: about `share` of the prompts, at least one, never all.

    Rows with the same prompt stay together. The result is a pure function of prompts and seed. Raises InvalidRequest
    for fewer than two different prompts.
    """
    prompts: dict[str, list[int]] = {}
    for row in rows:
        prompts.setdefault(prompt_digest(row), []).append(row.line)
    if len(prompts) < 2:
        raise InvalidRequest(f"{len(prompts)} different prompts cannot be split; add rows")
    ordered = sorted(prompts, key=lambda digest: hashlib.sha256(f"{seed}:{digest}".encode()).digest())
    count = min(max(round(share * len(prompts)), 1), len(prompts) - 1)
    return frozenset(line for digest in ordered[:count] for line in prompts[digest])
