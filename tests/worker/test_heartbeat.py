"""Signs of life of a process that trains."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from strop.types import Context, Failure, Message, SamplingParams, Turn
from strop.worker.heartbeat import BeatingCompleter


class One:
    """Answers with one word."""

    async def complete(self, context: Context, count: int, params: SamplingParams) -> Sequence[Turn | Failure]:
        return [Failure("exception", "no")] * count


def test_each_answer_is_a_sign_of_life(tmp_path: Path) -> None:
    completer = BeatingCompleter(One(), tmp_path)
    context = Context((Message("user", "?"),))
    for _ in range(2):
        (tmp_path / ".heartbeat").unlink(missing_ok=True)
        assert (
            len(asyncio.run(completer.complete(context, 3, SamplingParams(temperature=1.0, max_tokens=4, seed=1)))) == 3
        )
        assert (tmp_path / ".heartbeat").exists()
