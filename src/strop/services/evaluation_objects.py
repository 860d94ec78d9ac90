"""Evaluations, their rows and their comparisons as clients and pages see them."""

from __future__ import annotations

from typing import Any, Literal

from strop.jobs.task import TaskStatus
from strop.services.objects import Answer
from strop.services.rollout_objects import RolloutFields


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
    """Current phase, if it is not answering rows."""
    rows_failed: int
    rows_per_second: float | None


class EvaluationRow(Answer):
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


class EvaluationRows(Answer):
    """A page of rows; `last_id` is the `after` of the page behind it."""

    object: Literal["list"] = "list"
    data: list[EvaluationRow]
    has_more: bool
    last_id: str | None


class PairObject(Answer):
    """A row as two models answered it."""

    row: str
    line: int
    change: float | None
    """Reward of the other less that of the base; None where one could not be scored."""
    base: EvaluationRow
    other: EvaluationRow


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
