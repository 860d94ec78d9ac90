"""Helpers: graders run on samples, in real processes and over real connections."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from strop.config import RewardConfig
from strop.rewards.grade_arguments import sample_payload
from strop.rewards.graders.function import GraderFunction
from strop.rewards.graders.grade import Grade
from strop.rewards.graders.parse import parse_grader
from strop.types import Message, Rollout, Row, StopReason, ToolCall, Turn

ROW = Row("r1", 1, (Message("user", "2 + 2?"),), (), None, {"answer": "4"})


def rollout(text: str, tools: Sequence[Mapping[str, Any]] = ()) -> Rollout:
    """An answer of the model."""
    calls = tuple(ToolCall(tool["id"], tool["function"]["name"], tool["function"]["arguments"]) for tool in tools)
    return Rollout(0, (Turn(Message("assistant", text, calls), StopReason.STOP, 1),), StopReason.STOP)


def settings(**changes: Any) -> RewardConfig:
    """The table of a reward called `score`."""
    return RewardConfig.model_validate({"name": "score", "source": "grader.json", "timeout_s": 20.0} | changes)


def grades(
    grader: Any,
    texts: Sequence[str],
    item: Mapping[str, Any] | None = None,
    *,
    config: RewardConfig | None = None,
    variables: Mapping[str, str] | None = None,
    allow_private: bool = True,
) -> list[Grade]:
    """What a grader makes of several answers, all at the same time."""

    async def main() -> list[Grade]:
        function = GraderFunction(config or settings(), parse_grader(grader), variables or {}, allow_private)
        await function.start()
        try:
            samples = [sample_payload(rollout(text)) for text in texts]
            return await asyncio.gather(*(function.grade(sample, item or {}, 1) for sample in samples))
        finally:
            await function.close()

    return asyncio.run(main())


def grade(grader: Any, text: str, item: Mapping[str, Any] | None = None, **options: Any) -> Grade:
    """What a grader makes of one answer."""
    return grades(grader, [text], item, **options)[0]


def check(**changes: Any) -> dict[str, Any]:
    """A string check of the answer against `item.answer`."""
    shape = {"type": "string_check", "name": "exact", "operation": "eq"}
    return shape | {"input": "{{sample.output_text}}", "reference": "{{item.answer}}"} | changes
