"""`python -m strop.worker.trial`: score given completions with reward functions, as in training.

This is a separate process, so that secrets are only in its environment and it can be killed whatever a reward does.
It reads and writes JSON on standard input and output:

    in   {"rewards": [tables of `[[rewards]]`], "cases": [{"line", "fields", "answer"}], "seconds"}
    out  {"results": [{"reward", "components", "weights", "failure", "logs", "seconds"}]} or {"error"}
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack, redirect_stdout
from typing import Any

from strop.config import RewardConfig
from strop.data.rows import build_row
from strop.errors import RewardError, StropError
from strop.rewards.scorer import Scorer
from strop.seeds import derive_seed
from strop.types import Failure, Json, Message, Rollout, Row, StopReason, Turn

SEED = 17
NOT_REACHED = Failure(
    "not reached", "the test's time limit was reached first; test fewer completions or raise the limit"
)


async def score_cases(
    rewards: Sequence[RewardConfig], cases: Sequence[tuple[Row, str]], seconds: float
) -> list[Rollout]:
    """A rollout for each completion, with its reward or failure. Completions that are not scored within `seconds`
    fail.

    Raises RewardError if a function cannot be loaded in that time.
    """
    ends = asyncio.get_running_loop().time() + seconds
    async with AsyncExitStack() as stack:
        try:
            async with asyncio.timeout_at(ends):
                scorer = await stack.enter_async_context(Scorer.from_config(rewards))
        except TimeoutError:
            raise RewardError(f"the rewards could not be loaded within {seconds:g} s", param="rewards") from None
        rollouts = [_rollout(place, answer) for place, (_, answer) in enumerate(cases)]
        tasks = [
            asyncio.create_task(scorer.score(row, rollout, derive_seed(SEED, rollout.index)))
            for (row, _), rollout in zip(cases, rollouts, strict=True)
        ]
        await asyncio.wait(tasks, timeout=ends - asyncio.get_running_loop().time())
        late = [task for task in tasks if task.cancel()]
        await asyncio.gather(*late, return_exceptions=True)
        return [
            dataclasses.replace(rollout, failure=NOT_REACHED) if task.cancelled() else task.result()
            for task, rollout in zip(tasks, rollouts, strict=True)
        ]


def _rollout(index: int, answer: str) -> Rollout:
    return Rollout(index, (Turn(Message("assistant", answer), StopReason.STOP, 0),), StopReason.STOP)


def _result(rollout: Rollout) -> dict[str, Json]:
    reward, failure = rollout.reward, rollout.failure
    return {
        "reward": reward.total if reward else None,
        "components": dict(reward.components) if reward else {},
        "weights": dict(reward.weights) if reward else {},
        "failure": vars(failure) if failure else None,
        "logs": rollout.logs,
        "seconds": rollout.timing.get("reward", 0.0),
    }


def _case(case: dict[str, Any]) -> tuple[Row, str]:
    row = build_row(case["line"], case["fields"])
    assert isinstance(row, Row), row  # whoever calls has checked it
    return row, case["answer"]


def main() -> None:
    work = json.load(sys.stdin)
    rewards = [RewardConfig.model_validate(table) for table in work["rewards"]]
    cases = [_case(case) for case in work["cases"]]
    try:
        with redirect_stdout(sys.stderr):  # the channel is ours alone
            scored = asyncio.run(score_cases(rewards, cases, work["seconds"]))
    except StropError as error:
        json.dump({"error": error.message}, sys.stdout)
    else:
        json.dump({"results": [_result(rollout) for rollout in scored]}, sys.stdout)


if __name__ == "__main__":
    main()
