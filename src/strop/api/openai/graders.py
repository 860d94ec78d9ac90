"""`/v1/fine_tuning/alpha/graders`: trying a grader on one answer before a job uses it."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterable
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, Field

from strop.api.dependencies import Provided
from strop.errors import InvalidRequest, Unavailable
from strop.http.bodies import Body
from strop.rewards.graders.grader import Grader
from strop.rewards.graders.parse import parse_grader
from strop.rewards.graders.result import run_grader
from strop.services.container import Services
from strop.services.reward_tables import with_judge
from strop.services.server_library import ServerLibrary
from strop.types import Json

router = APIRouter(prefix="/fine_tuning/alpha/graders")

PART_S = 120.0
"""For each part of a grader: OpenAI's limit."""
WHOLE_S = 150.0
_PATIENCE_S = 10.0

_at_once = threading.BoundedSemaphore(4)


class GraderBody(Body):
    """A grader to look at."""

    grader: dict[str, Any]


class GraderRunBody(GraderBody):
    """A grader and the sample to grade."""

    model_sample: str = Field(description="What the model said; sample.output_json has it where it is JSON.")
    item: dict[str, Any] = Field({}, description="The row.")


class ValidatedGrader(BaseModel):
    """A grader without faults, as it was sent."""

    grader: dict[str, Any]


class GraderErrors(BaseModel):
    """What went wrong: OpenAI's flags, and details for three of them."""

    formula_parse_error: bool
    sample_parse_error: bool
    truncated_observation_error: bool
    unresponsive_reward_error: bool
    invalid_variable_error: bool
    other_error: bool
    python_grader_server_error: bool
    python_grader_server_error_type: str | None
    python_grader_runtime_error: bool
    python_grader_runtime_error_details: str | None
    model_grader_server_error: bool
    model_grader_refusal_error: bool
    model_grader_parse_error: bool
    model_grader_server_error_details: str | None


class GraderMetadata(BaseModel):
    """About one run of a grader."""

    name: str
    type: str
    errors: GraderErrors
    execution_time: float
    scores: dict[str, float]
    token_usage: int | None
    sampled_model_name: str | None
    # strop's own.
    failure: str | None = Field(description="Why there is no reward.")
    logs: str = Field(description="What Python code printed.")


class GraderRun(BaseModel):
    """What a grader made of an answer."""

    reward: float | None = Field(description="null where the grader failed: that is no zero.")
    metadata: GraderMetadata
    sub_rewards: dict[str, float]
    model_grader_token_usage_per_model: dict[str, dict[str, int]]


@router.post("/validate")
def validate_grader(body: GraderBody) -> ValidatedGrader:
    """Whether a grader can be used; what is wrong with it is named."""
    parse_grader(body.grader)
    return ValidatedGrader(grader=body.grader)


# In a thread with an event loop of its own: neither a judge nor long texts hold up other requests.
@router.post("/run")
def run_grader_once(body: GraderRunBody, services: Provided) -> GraderRun:
    """Grade one answer. Python code runs in a process of its own."""
    parse_grader(body.grader)
    names: dict[str, None] = {}
    grader = parse_grader(with_judge(body.grader, names, ServerLibrary(services)))
    variables = _variables(names, services)
    if not _at_once.acquire(timeout=_PATIENCE_S):
        raise Unavailable("other graders are being tried; try again in a moment", retry_after=10)
    try:
        return asyncio.run(_run(grader, body, variables))
    finally:
        _at_once.release()


async def _run(grader: Grader, body: GraderRunBody, variables: dict[str, str]) -> GraderRun:
    try:
        async with asyncio.timeout(WHOLE_S):
            result = await run_grader(grader, body.model_sample, body.item, variables=variables, timeout_s=PART_S)
    except TimeoutError:
        raise InvalidRequest(f"the grader did not end within {WHOLE_S:g} s", param="grader") from None
    answer: dict[str, Json] = result.response()
    answer["metadata"] |= {"failure": result.failure.message if result.failure else None, "logs": result.logs}
    return GraderRun.model_validate(answer)


def _variables(names: Iterable[str], services: Services) -> dict[str, str]:
    """Values of the variables that judges need: secrets first, then the server's own."""
    stored = {secret.name for secret in services.secrets.names()}
    found = services.secrets.reveal([name for name in names if name in stored])
    own = {name: os.environ[name] for name in names if name not in stored and name in os.environ}
    missing = [name for name in names if name not in found and name not in own]
    if missing:
        raise InvalidRequest(
            f"the judge needs {', '.join(missing)}: store it as a secret of the server, name a model of this server, "
            "or give the grader a base_url",
            param="grader",
        )
    return {**own, **found}
