"""Steps, prompts and rollouts of a run, page by page, and the heat map of a prompt."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from strop.api.answers import MAX_INT, NOT_MODIFIED, Answer, Cached, FirstStep, LastStep, RunId
from strop.api.dependencies import Provided
from strop.api.paging import After, Limit, Page, page
from strop.store import queries
from strop.store.queries.live import stamp
from strop.types import StopReason

router = APIRouter()

Step = Annotated[int | None, Query(ge=0, le=MAX_INT)]
Reward = Annotated[float | None, Query(allow_inf_nan=False)]
Component = Annotated[
    str | None, Query(description="The reward component that bounds and sorting are about; the total without it.")
]
Failed = Annotated[bool | None, Query(description="Whether it could not be scored.")]
Cause = Annotated[str | None, Query(description="Why it could not be scored: exception, timeout, crash …")]
Stopped = Annotated[StopReason | None, Query(description="Why the rollout ended.")]
Counted = Annotated[bool, Query(description="Whether to count what all pages hold.")]
RowId = Annotated[str, Path(description="Id of a row, as in the data set.")]


class StepObject(Answer):
    """What was sampled in a step."""

    object: Literal["run.step"] = "run.step"
    id: str
    """Its number, as text: what `after` takes."""
    step: int
    prompts: int
    samples: int
    failed: int
    """Samples that could not be scored."""
    truncated: int
    """Samples that were cut off at the limit."""
    reward: float | None
    """Mean over what could be scored."""
    damage: str | None
    """What of its files cannot be read."""


class PromptObject(Answer):
    """A prompt and what came of it in the newest step that it was drawn in."""

    object: Literal["run.prompt"] = "run.prompt"
    id: str
    """Of its row."""
    line: int
    preview: str
    """The start of its last user turn."""
    step: int
    samples: int
    failed: int
    truncated: int
    reward: float | None
    """Mean over what could be scored."""
    best: float | None
    components: dict[str, float]
    """Means."""
    answer: str
    """The start of its first sample."""


class PromptPage(Page[PromptObject]):
    """A page of prompts."""

    total: int | None
    """On all pages; None where it was not asked for."""


class Cell(Answer):
    """One attempt at a prompt in one step."""

    id: str
    """Of the rollout."""
    step: int
    sample: int
    reward: float | None
    stop_reason: str
    cause: str | None
    """Why it could not be scored."""


class HeatMap(Answer):
    """Every attempt at a prompt: columns are steps, rows are attempts."""

    object: Literal["run.heat_map"] = "run.heat_map"
    run_id: str
    row: str
    steps: list[int]
    """In which the prompt was drawn."""
    samples: int
    """Attempts in the step that has most of them."""
    lowest: float | None
    highest: float | None
    cells: list[Cell]


class RolloutObject(Answer):
    """A rollout without its tokens."""

    object: Literal["rollout"] = "rollout"
    id: str
    run_id: str
    row: str
    step: int
    sample: int
    reward: float | None
    advantage: float | None
    components: dict[str, float]
    stop_reason: str
    cause: str | None
    """Why it could not be scored."""
    length: int
    """Sampled tokens."""
    answer: str
    """The start of its last turn."""


class RolloutPage(Page[RolloutObject]):
    """A page of rollouts."""

    total: int | None
    """On all pages; None where it was not asked for."""


@router.get("/runs/{run_id}/steps")
def list_steps(
    run_id: RunId,
    services: Provided,
    after: Annotated[
        int | None, Query(ge=-1, le=MAX_INT, description="Number of the last step of the page before.")
    ] = None,
    limit: Limit = 100,
    first: FirstStep = None,
    last: LastStep = None,
    sort: Literal["step", "-step"] = "-step",
) -> Page[StepObject]:
    """Steps, the newest first."""
    services.ingester.refresh(run_id)
    with services.database.read() as connection:
        found = queries.steps_page(connection, run_id, first=first, last=last, sort=sort, limit=limit + 1, after=after)
    return page([StepObject(id=str(step["step"]), **step) for step in found], limit)


@router.get("/runs/{run_id}/prompts")
def list_prompts(
    run_id: RunId,
    services: Provided,
    after: After = None,
    limit: Limit = 50,
    search: Annotated[str, Query(description="Part of the conversation, in any case, or the id of a row.")] = "",
    min_reward: Reward = None,
    max_reward: Reward = None,
    component: Component = None,
    failed: Failed = None,
    cause: Cause = None,
    stop_reason: Stopped = None,
    sort: Annotated[
        str, Query(description="line, step, reward, best, failed or truncated; - turns it around.")
    ] = "line",
    count: Counted = False,
) -> PromptPage:
    """Prompts with the newest answers to them."""
    filters = queries.PromptFilter(
        component=component,
        min_reward=min_reward,
        max_reward=max_reward,
        failed=failed,
        cause=cause,
        stop_reason=stop_reason,
        search=search or None,
    )
    with services.database.read() as connection:
        found = queries.prompts_page(connection, run_id, filters, sort=sort, limit=limit + 1, after=after)
        total = queries.count_prompts(connection, run_id, filters) if count else None
    shown = [PromptObject(**{("id" if key == "row" else key): value for key, value in row.items()}) for row in found]
    return PromptPage(**vars(page(shown, limit)), total=total)


@router.get("/runs/{run_id}/prompts/{row}/heatmap", responses=NOT_MODIFIED, response_model=HeatMap)
def get_heat_map(
    run_id: RunId, row: RowId, services: Provided, cached: Cached, first: FirstStep = None, last: LastStep = None
) -> Response:
    """Every attempt at a prompt, by step and sample."""
    services.ingester.refresh(run_id)
    with services.database.read() as connection:
        if (known := cached.unchanged(*stamp(connection, run_id))) is not None:
            return known
        found = queries.heat_map(connection, run_id, row, first=first, last=last)
    rewards = [cell["reward"] for cell in found if cell["reward"] is not None]
    shown = {
        "object": "run.heat_map",
        "run_id": run_id,
        "row": row,
        "steps": sorted({cell["step"] for cell in found}),
        "samples": max((cell["sample"] + 1 for cell in found), default=0),
        "lowest": min(rewards, default=None),
        "highest": max(rewards, default=None),
        "cells": found,
    }
    return cached.encoded(shown)


@router.get("/runs/{run_id}/rollouts")
def list_rollouts(
    run_id: RunId,
    services: Provided,
    after: After = None,
    limit: Limit = 50,
    step: Step = None,
    first: FirstStep = None,
    last: LastStep = None,
    row: Annotated[str | None, Query(description="Id of the row that was the prompt.")] = None,
    sample: Step = None,
    search: Annotated[str, Query(description="Part of the prompt or the answer, in any case.")] = "",
    min_reward: Reward = None,
    max_reward: Reward = None,
    component: Component = None,
    failed: Failed = None,
    cause: Cause = None,
    stop_reason: Stopped = None,
    sort: Annotated[str, Query(description="step, reward, advantage or length; - turns it around.")] = "step",
    count: Counted = False,
) -> RolloutPage:
    """Rollouts of a run, without their tokens."""
    filters = queries.RolloutFilter(
        step=step,
        first=first,
        last=last,
        row=row,
        sample=sample,
        component=component,
        min_reward=min_reward,
        max_reward=max_reward,
        failed=failed,
        cause=cause,
        stop_reason=stop_reason,
        search=search or None,
    )
    with services.database.read() as connection:
        found = queries.rollouts_page(connection, run_id, filters, sort=sort, limit=limit + 1, after=after)
        total = queries.count_rollouts(connection, run_id, filters) if count else None
    return RolloutPage(**vars(page([RolloutObject(**rollout) for rollout in found], limit)), total=total)
