"""Models measured on data sets, row by row, and two of them compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from strop.config import EnvironmentConfig
from strop.errors import InvalidRequest
from strop.evals.report import RowResult, compare, report
from strop.jobs.evaluations import Evaluation
from strop.jobs.task import TaskStatus
from strop.services.container import Services
from strop.services.evaluation_objects import (
    ComparisonFigures,
    ComparisonObject,
    EvaluationDetails,
    EvaluationObject,
    EvaluationRow,
    EvaluationRows,
    PairObject,
    ReportObject,
)
from strop.services.evaluation_request import EvaluationRequest, new_evaluation
from strop.services.objects import Deleted, Page, page
from strop.services.threads import in_thread
from strop.store.queries.evaluations import RowFilter, evaluation_results, evaluation_rows_page, paired_page
from strop.types import Json


@in_thread
def create(services: Services, request: EvaluationRequest) -> EvaluationObject:
    """Put an evaluation into the queue. InvalidRequest for what cannot be evaluated."""
    return _shown(services, services.evaluations.create(new_evaluation(request, services)))


@in_thread
def list_page(
    services: Services, after: str | None = None, limit: int = 20, status: Sequence[TaskStatus] = ()
) -> Page[EvaluationObject]:
    """Evaluations, the newest first; with `status`, only those."""
    found = services.evaluations.list(limit=limit + 1, after=after, status=status)
    return page([_shown(services, evaluation) for evaluation in found], limit)


@in_thread
def get(services: Services, evaluation_id: str) -> EvaluationDetails:
    """One evaluation, with its figures as far as it is. NotFound for an unknown one."""
    evaluation = services.evaluations.get(evaluation_id)
    status = {} if evaluation.status.finished else services.evaluations.folder(evaluation).status()
    return EvaluationDetails(
        **_shown(services, evaluation).model_dump(),
        message=status.get("message"),
        rows_failed=status.get("rows_failed", 0),
        rows_per_second=status.get("rows_per_second"),
    )


@in_thread
def stamp(services: Services, evaluation_id: str) -> list[Json]:
    """What changes whenever anything about an evaluation does. NotFound for an unknown one."""
    evaluation = services.evaluations.get(evaluation_id)
    status = {} if evaluation.status.finished else services.evaluations.folder(evaluation).status()
    return [*_values(evaluation), status]


@in_thread
def list_rows(
    services: Services,
    evaluation_id: str,
    *,
    failed: bool | None = None,
    min_reward: float | None = None,
    max_reward: float | None = None,
    search: str | None = None,
    sort: str = "line",
    limit: int = 20,
    after: str | None = None,
) -> EvaluationRows:
    """Rows that are done, with every answer; `search` is part of the prompt's beginning."""
    filters = RowFilter(failed, min_reward, max_reward, search)
    with services.database.read() as connection:
        rows = evaluation_rows_page(connection, evaluation_id, filters, sort=sort, limit=limit + 1, after=after)
    shown = rows[:limit]
    return EvaluationRows(
        data=[EvaluationRow(**row) for row in shown],
        has_more=len(rows) > limit,
        last_id=str(shown[-1]["row"]) if shown else None,
    )


@in_thread
def compare_two(
    services: Services, base: str, other: str, *, sort: str = "-change", limit: int = 20, after: str | None = None
) -> ComparisonObject:
    """Two evaluations on the same rows: paired figures, and the rows side by side.

    InvalidRequest where they have no row in common that both could score.
    """
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
        base=_shown(services, first),
        other=_shown(services, second),
        figures=ComparisonFigures(**asdict(figures)),
        notes=_notes(first, second),
        data=[PairObject(**pair) for pair in pairs[:limit]],
        has_more=len(pairs) > limit,
        last_id=str(pairs[:limit][-1]["row"]) if pairs else None,
    )


@in_thread
def cancel(services: Services, evaluation_id: str) -> EvaluationObject:
    """End an evaluation. What is done stays."""
    return _shown(services, services.evaluations.cancel(evaluation_id))


@in_thread
def resume(services: Services, evaluation_id: str) -> EvaluationObject:
    """Go on with one that failed or was cancelled; rows that are done are not done again."""
    return _shown(services, services.evaluations.resume(evaluation_id))


@in_thread
def delete(services: Services, evaluation_id: str) -> Deleted:
    """Delete an evaluation with its answers."""
    services.evaluations.delete(evaluation_id)
    return Deleted(object="evaluation", id=evaluation_id)


def _shown(services: Services, evaluation: Evaluation) -> EvaluationObject:
    figures = evaluation.metrics or {}
    found = figures.get("report") or _report_so_far(services, evaluation)
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


def _report_so_far(services: Services, evaluation: Evaluation) -> dict[str, Any] | None:
    if not evaluation.rows_done:
        return None
    with services.database.read() as connection:
        found = asdict(report(_results(evaluation_results(connection, evaluation.id))))
    return {**found, "pass_at": {str(size): value for size, value in found["pass_at"].items()}}


def _results(rows: list[dict[str, Json]]) -> list[RowResult]:
    return [RowResult(**row) for row in rows]


def stamp_of(evaluation: EvaluationObject) -> list[Json]:
    """What of an evaluation in a list may change; instant."""
    return _values(evaluation)


def _values(evaluation: Evaluation | EvaluationObject) -> list[Json]:
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
