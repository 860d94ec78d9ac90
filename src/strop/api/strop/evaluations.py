"""`/v1/strop/evaluations`: models measured on data sets, row by row, and two of them compared."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from strop.api.answers import NOT_MODIFIED, Cached, Deleted
from strop.api.dependencies import Provided
from strop.api.paging import After, Limit, Page
from strop.jobs.task import TaskStatus
from strop.services import evaluations
from strop.services.evaluation_objects import ComparisonObject, EvaluationDetails, EvaluationObject, EvaluationRows
from strop.services.evaluation_request import EvaluationRequest

router = APIRouter(prefix="/evaluations")

EvaluationId = Annotated[str, Path(description="Id of an evaluation, `eval_…`.")]
RowLimit = Annotated[int, Query(ge=1, le=200, description="Rows on a page.")]
RowAfter = Annotated[str | None, Query(description="Id of the last row of the page before.")]


@router.post("")
async def create_evaluation(body: EvaluationRequest, services: Provided) -> EvaluationObject:
    """Put an evaluation into the queue. Its rows are answered and scored in a process of its own."""
    return await evaluations.create(services, body)


@router.get("", responses=NOT_MODIFIED, response_model=Page[EvaluationObject])
async def list_evaluations(
    services: Provided,
    cached: Cached,
    after: After = None,
    limit: Limit = 20,
    status: Annotated[list[TaskStatus] | None, Query(description="Only these; may be given often.")] = None,
) -> Page[EvaluationObject] | Response:
    """Evaluations, the newest first."""
    found = await evaluations.list_page(services, after, limit, status or ())
    known = cached.unchanged(found.has_more, [evaluations.stamp_of(evaluation) for evaluation in found.data])
    return found if known is None else known


@router.get("/compare")
async def compare_evaluations(
    services: Provided,
    base: Annotated[str, Query(description="Id of the evaluation to compare with.")],
    other: Annotated[str, Query(description="Id of the evaluation that is compared.")],
    sort: Annotated[str, Query(description="change, line, base or other; - before it for the highest first.")] = (
        "-change"
    ),
    limit: RowLimit = 20,
    after: RowAfter = None,
) -> ComparisonObject:
    """Two evaluations on the same rows: paired figures, and the rows side by side."""
    return await evaluations.compare_two(services, base, other, sort=sort, limit=limit, after=after)


@router.get("/{evaluation_id}", responses=NOT_MODIFIED, response_model=EvaluationDetails)
async def retrieve_evaluation(
    evaluation_id: EvaluationId, services: Provided, cached: Cached
) -> EvaluationDetails | Response:
    """One evaluation, with its figures as far as it is."""
    if (known := cached.unchanged(await evaluations.stamp(services, evaluation_id))) is not None:
        return known
    return await evaluations.get(services, evaluation_id)


@router.get("/{evaluation_id}/rows")
async def list_rows(
    evaluation_id: EvaluationId,
    services: Provided,
    sort: Annotated[str, Query(description="line, reward or passed; - before it for the highest first.")] = "line",
    limit: RowLimit = 20,
    after: RowAfter = None,
    failed: Annotated[bool | None, Query(description="Whether they could not be scored.")] = None,
    min_reward: Annotated[float | None, Query(allow_inf_nan=False)] = None,
    max_reward: Annotated[float | None, Query(allow_inf_nan=False)] = None,
    search: Annotated[str | None, Query(description="Part of the prompt's beginning.")] = None,
) -> EvaluationRows:
    """Rows that are done, with every answer."""
    return await evaluations.list_rows(
        services,
        evaluation_id,
        failed=failed,
        min_reward=min_reward,
        max_reward=max_reward,
        search=search,
        sort=sort,
        limit=limit,
        after=after,
    )


@router.post("/{evaluation_id}/cancel")
async def cancel_evaluation(evaluation_id: EvaluationId, services: Provided) -> EvaluationObject:
    """End an evaluation. What is done stays."""
    return await evaluations.cancel(services, evaluation_id)


@router.post("/{evaluation_id}/resume")
async def resume_evaluation(evaluation_id: EvaluationId, services: Provided) -> EvaluationObject:
    """Go on with one that failed or was cancelled; rows that are done are not done again."""
    return await evaluations.resume(services, evaluation_id)


@router.delete("/{evaluation_id}")
async def delete_evaluation(evaluation_id: EvaluationId, services: Provided) -> Deleted:
    """Delete an evaluation with its answers."""
    return await evaluations.delete(services, evaluation_id)
