"""`python -m strop.worker.trial FOLDER`: score given completions with reward functions, as in training.

This is a separate process, so that secrets are only in its environment and it can be killed whatever a reward does.
It reads and writes JSON files in its folder:

    spec.json    {"rewards": [tables of `[[rewards]]`], "cases": [{"line", "fields", "answer"}], "seconds"}
    result.json  {"results": [{"reward", "components", "weights", "failure", "logs", "seconds"}]} or {"error"}
"""

from __future__ import annotations

import asyncio
import dataclasses
import sys
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

from strop.config import RewardConfig
from strop.data.rows import build_row
from strop.errors import RewardError
from strop.rewards.scorer import Scorer
from strop.seeds import derive_seed
from strop.store.spec_process import run_spec
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


def try_completions(spec: Mapping[str, Json]) -> dict[str, Json]:
    """The result for a spec. RewardError where a function cannot be loaded."""
    rewards = [RewardConfig.model_validate(table) for table in spec["rewards"]]
    cases = [_case(case) for case in spec["cases"]]
    scored = asyncio.run(score_cases(rewards, cases, spec["seconds"]))
    return {"results": [_result(rollout) for rollout in scored]}


if __name__ == "__main__":
    sys.exit(run_spec(try_completions, __doc__))
