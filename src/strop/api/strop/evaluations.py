"""`/v1/strop/evaluations`: models measured on data sets, row by row, and two of them compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from strop.api.answers import NOT_MODIFIED, Answer, Cached, Deleted
from strop.api.dependencies import Provided
from strop.api.evaluation_request import EvaluationRequest, new_evaluation
from strop.api.paging import After, Limit, Page, page
from strop.api.rollout_objects import RolloutFields
from strop.api.services import Services
from strop.config import EnvironmentConfig
from strop.errors import InvalidRequest
from strop.evals.report import RowResult, compare, report
from strop.jobs.evaluations import Evaluation
from strop.jobs.task import TaskStatus
from strop.store.queries.evaluations import RowFilter, evaluation_results, evaluation_rows_page, paired_page
from strop.types import Json

router = APIRouter(prefix="/evaluations")

EvaluationId = Annotated[str, Path(description="Id of an evaluation, `eval_…`.")]
RowLimit = Annotated[int, Query(ge=1, le=200, description="Rows on a page.")]
RowAfter = Annotated[str | None, Query(description="Id of the last row of the page before.")]


class EstimateObject(Answer):
    """A mean over rows with its 95 % confidence interval."""

    mean: float
    low: float | None
    """None with a single row, which says nothing about the others."""
    high: float | None


class ReportObject(Answer):
    """The figures of an evaluation. docs/evaluation.md says how intervals are made."""

    rows: int
    scored: int
    """Rows whose answers could all be scored: the figures are over these."""
    reward: EstimateObject | None
    pass_at: dict[str, EstimateObject]
    """By k: the chance that at least one of k answers passes."""
    components: dict[str, EstimateObject]


class EvaluationObject(Answer):
    """A model on a data set."""

    object: Literal["evaluation"] = "evaluation"
    id: str
    created_at: int
    name: str
    model: str
    """For people."""
    status: TaskStatus
    reason: str | None
    """Why it failed or was started again, and what to do."""
    position: int | None
    """In the queue, 1 for the next to run; None for one that does not wait."""
    rows_done: int
    rows_total: int | None
    """None until its rows were read."""
    report: ReportObject | None
    """As far as rows are done."""
    metrics: dict[str, float] | None
    """Under the names of training metrics; None until it is done."""
    request: dict[str, Any]
    """What the client sent."""
    settings: dict[str, Any]
    """Tables of the configuration: `rewards`, `sampling`, `eval`, `seed` and so on."""
    started_at: int | None
    finished_at: int | None
    restarts: int


class EvaluationDetails(EvaluationObject):
    """An evaluation with what its process says at the moment."""

    message: str | None
    """What it is doing, where that is not to answer rows."""
    rows_failed: int
    rows_per_second: float | None


class RowObject(Answer):
    """A row and what came of it."""

    row: str
    """Id of the row."""
    line: int
    prompt: list[dict[str, Any]]
    reward: float | None
    """Mean over its answers; None where one could not be scored."""
    passed: int
    samples: int
    components: dict[str, float]
    """Means."""
    failure: str | None
    rollouts: list[RolloutFields]


class RowPage(Answer):
    """A page of rows; `last_id` is the `after` of the page behind it."""

    object: Literal["list"] = "list"
    data: list[RowObject]
    has_more: bool
    last_id: str | None


class PairObject(Answer):
    """A row as two models answered it."""

    row: str
    line: int
    change: float | None
    """Reward of the other less that of the base; None where one could not be scored."""
    base: RowObject
    other: RowObject


class ComparisonFigures(Answer):
    """Two models on the rows that both could be scored on, paired."""

    rows: int
    before: EstimateObject
    """Of the base."""
    after: EstimateObject
    change: EstimateObject
    pass_change: EstimateObject
    """Of the share of passing answers."""
    components: dict[str, EstimateObject]
    """Change of each."""
    better: int
    worse: int
    equal: int
    p_value: float
    """Chance of a mean change at least as large if the models were alike, by flipping signs."""


class ComparisonObject(Answer):
    """A comparison with a page of its rows; `last_id` is the `after` of the page behind it."""

    object: Literal["evaluation.comparison"] = "evaluation.comparison"
    base: EvaluationObject
    other: EvaluationObject
    figures: ComparisonFigures
    notes: list[str]
    """What makes the comparison less fair."""
    data: list[PairObject]
    has_more: bool
    last_id: str | None


@router.post("")
def create_evaluation(body: EvaluationRequest, services: Provided) -> EvaluationObject:
    """Put an evaluation into the queue. Its rows are answered and scored in a process of its own."""
    return evaluation_object(services.evaluations.create(new_evaluation(body, services)), services)


@router.get("", responses=NOT_MODIFIED, response_model=Page[EvaluationObject])
def list_evaluations(
    services: Provided,
    cached: Cached,
    after: After = None,
    limit: Limit = 20,
    status: Annotated[list[TaskStatus] | None, Query(description="Only these; may be given often.")] = None,
) -> Page[EvaluationObject] | Response:
    """Evaluations, the newest first."""
    found = services.evaluations.list(limit=limit + 1, after=after, status=status or ())
    if (known := cached.unchanged([_stamp(evaluation) for evaluation in found])) is not None:
        return known
    return page([evaluation_object(evaluation, services) for evaluation in found], limit)


@router.get("/compare")
def compare_evaluations(
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
    first, second = services.evaluations.get(base), services.evaluations.get(other)
    with services.database.read() as connection:
        results = [_results(evaluation_results(connection, key)) for key in (base, other)]
        pairs = paired_page(connection, base, other, sort=sort, limit=limit + 1, after=after)
    figures = compare(*results)
    if figures is None:
        raise InvalidRequest(
            f"{base} and {other} have no row in common that both could score; evaluate both on one data set",
            param="other",
        )
    return ComparisonObject(
        base=evaluation_object(first, services),
        other=evaluation_object(second, services),
        figures=ComparisonFigures(**asdict(figures)),
        notes=_notes(first, second),
        data=[PairObject(**pair) for pair in pairs[:limit]],
        has_more=len(pairs) > limit,
        last_id=str(pairs[:limit][-1]["row"]) if pairs else None,
    )


@router.get("/{evaluation_id}", responses=NOT_MODIFIED, response_model=EvaluationDetails)
def retrieve_evaluation(
    evaluation_id: EvaluationId, services: Provided, cached: Cached
) -> EvaluationDetails | Response:
    """One evaluation, with its figures as far as it is."""
    evaluation = services.evaluations.get(evaluation_id)
    status = {} if evaluation.status.finished else services.evaluations.folder(evaluation).status()
    if (known := cached.unchanged(_stamp(evaluation), status)) is not None:
        return known
    return EvaluationDetails(
        **evaluation_object(evaluation, services).model_dump(),
        message=status.get("message"),
        rows_failed=status.get("rows_failed", 0),
        rows_per_second=status.get("rows_per_second"),
    )


@router.get("/{evaluation_id}/rows")
def list_rows(
    evaluation_id: EvaluationId,
    services: Provided,
    sort: Annotated[str, Query(description="line, reward or passed; - before it for the highest first.")] = "line",
    limit: RowLimit = 20,
    after: RowAfter = None,
    failed: Annotated[bool | None, Query(description="Whether they could not be scored.")] = None,
    min_reward: Annotated[float | None, Query(allow_inf_nan=False)] = None,
    max_reward: Annotated[float | None, Query(allow_inf_nan=False)] = None,
    search: Annotated[str | None, Query(description="Part of the prompt's beginning.")] = None,
) -> RowPage:
    """Rows that are done, with every answer."""
    filters = RowFilter(failed, min_reward, max_reward, search)
    with services.database.read() as connection:
        rows = evaluation_rows_page(connection, evaluation_id, filters, sort=sort, limit=limit + 1, after=after)
    shown = rows[:limit]
    return RowPage(
        data=[RowObject(**row) for row in shown],
        has_more=len(rows) > limit,
        last_id=str(shown[-1]["row"]) if shown else None,
    )


@router.post("/{evaluation_id}/cancel")
def cancel_evaluation(evaluation_id: EvaluationId, services: Provided) -> EvaluationObject:
    """End an evaluation. What is done stays."""
    return evaluation_object(services.evaluations.cancel(evaluation_id), services)


@router.post("/{evaluation_id}/resume")
def resume_evaluation(evaluation_id: EvaluationId, services: Provided) -> EvaluationObject:
    """Go on with one that failed or was cancelled; rows that are done are not done again."""
    return evaluation_object(services.evaluations.resume(evaluation_id), services)


@router.delete("/{evaluation_id}")
def delete_evaluation(evaluation_id: EvaluationId, services: Provided) -> Deleted:
    """Delete an evaluation with its answers."""
    services.evaluations.delete(evaluation_id)
    return Deleted(object="evaluation", id=evaluation_id)


def evaluation_object(evaluation: Evaluation, services: Services) -> EvaluationObject:
    """An evaluation as clients and pages see it."""
    figures = evaluation.metrics or {}
    found = figures.get("report") or _report_so_far(evaluation, services)
    return EvaluationObject(
        id=evaluation.id,
        created_at=int(evaluation.created_at),
        name=evaluation.name,
        model=evaluation.model,
        status=evaluation.status,
        reason=evaluation.reason,
        position=services.evaluations.position(evaluation),
        rows_done=evaluation.rows_done,
        rows_total=evaluation.rows_total,
        report=found and ReportObject(**found),
        metrics=figures.get("metrics"),
        request=evaluation.spec.get("request", {}),
        settings=evaluation.spec["config"],
        started_at=_seconds(evaluation.started_at),
        finished_at=_seconds(evaluation.finished_at),
        restarts=evaluation.restarts,
    )


def _report_so_far(evaluation: Evaluation, services: Services) -> dict[str, Any] | None:
    if not evaluation.rows_done:
        return None
    with services.database.read() as connection:
        found = asdict(report(_results(evaluation_results(connection, evaluation.id))))
    return {**found, "pass_at": {str(size): value for size, value in found["pass_at"].items()}}


def _results(rows: list[dict[str, Json]]) -> list[RowResult]:
    return [RowResult(**row) for row in rows]


def _stamp(evaluation: Evaluation) -> list[Json]:
    """What changes whenever anything about an evaluation does."""
    parts = (evaluation.id, evaluation.status, evaluation.reason, evaluation.rows_done, evaluation.rows_total)
    return [*parts, evaluation.restarts, evaluation.finished_at]


def _notes(base: Evaluation, other: Evaluation) -> list[str]:
    """Settings in which two evaluations differ, though only the model should."""
    notes = []
    for evaluation in (base, other):
        if evaluation.status is not TaskStatus.SUCCEEDED:
            done = f"{evaluation.rows_done} of {evaluation.rows_total or 'unknown'} rows"
            notes.append(f"{evaluation.name} is {evaluation.status}: {done} are done")
    for name in ("rewards", "eval", "sampling", "environment", "seed"):
        if _setting(base.spec, name) != _setting(other.spec, name):
            notes.append(f"the two have other settings of {name}")
    return notes


def _setting(spec: Mapping[str, Json], name: str) -> Json:
    found: Json = spec["config"].get(name)
    if name == "sampling":  # how many sequences are decoded at a time changes no answer
        return {key: value for key, value in found.items() if key != "max_concurrent"}
    if name == "environment" and found is None:  # of an evaluation from before there were environments
        return EnvironmentConfig().model_dump(mode="json")
    return found


def _seconds(time: float | None) -> int | None:
    return None if time is None else int(time)
