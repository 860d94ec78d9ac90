"""`/v1/strop/runs/{id}/metrics`: curves of a run."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query
from starlette.responses import Response

from strop.api.answers import NOT_MODIFIED, Answer, Cached, FirstStep, LastStep, RunId
from strop.api.dependencies import Provided
from strop.store import queries
from strop.store.queries.live import newest_step, stamp

router = APIRouter()

MAX_POINTS = 10_000
Group = Literal["reward", "component", "rollout", "training", "time", "failure", "validation"]

_REWARD = ("reward", "max_reward", "solve_rate")
_ROLLOUT = (
    "reward_group_std",
    "frac_reward_zero_std",
    "response_length",
    "response_length_clip_ratio",
    "advantages",
    "entropy",
    "rollouts_errored",
    "prompts_dropped",
)


class MetricName(Answer):
    """A metric that a run has."""

    name: str
    group: Group
    component: str | None
    """The reward component that it is about."""


class MetricNames(Answer):
    """The metrics that a run has, in the order in which they came up."""

    object: Literal["run.metric_names"] = "run.metric_names"
    data: list[MetricName]
    components: list[str]
    """Names of the reward components."""


class Series(Answer):
    """A curve: three lists of equal length."""

    steps: list[int]
    values: list[float]
    smoothed: list[float]
    """The moving average at the same steps."""


class SeriesList(Answer):
    """Curves by name."""

    object: Literal["run.metrics"] = "run.metrics"
    run_id: str
    newest_step: int | None
    """Of the run, whatever range was asked for."""
    data: dict[str, Series]


@router.get("/runs/{run_id}/metrics/names")
def list_metric_names(run_id: RunId, services: Provided) -> MetricNames:
    """Which metrics a run has."""
    with services.database.read() as connection:
        names = [_described(name) for name in queries.metric_names(connection, run_id)]
    components = dict.fromkeys(name.component for name in names if name.component)
    return MetricNames(data=names, components=list(components))


@router.get("/runs/{run_id}/metrics", responses=NOT_MODIFIED, response_model=SeriesList)
def get_metrics(
    run_id: RunId,
    services: Provided,
    cached: Cached,
    name: Annotated[list[str] | None, Query(description="A metric; may be given often. Without it, all.")] = None,
    first: FirstStep = None,
    last: LastStep = None,
    points: Annotated[int, Query(ge=2, le=MAX_POINTS, description="At most about so many; extremes stay.")] = 500,
    smoothing: Annotated[float, Query(ge=0, lt=1, description="Weight of the past in the moving average.")] = 0.0,
) -> Response:
    """Curves of a run. They are smoothed over all steps first, then cut to the range, then thinned out."""
    services.ingester.refresh(run_id)
    with services.database.read() as connection:
        if (known := cached.unchanged(*stamp(connection, run_id))) is not None:
            return known
        found = queries.series(connection, run_id, name, first=first, last=last, points=points, smoothing=smoothing)
        newest = newest_step(connection, run_id)
    return cached.encoded({"object": "run.metrics", "run_id": run_id, "newest_step": newest, "data": found})


def _described(name: str) -> MetricName:
    kind, _, rest = name.partition("/")
    if kind == "validation":
        inner = rest.partition("/")
        component = inner[2] if inner[0] in _REWARD and inner[2] else None
        return MetricName(name=name, group="validation", component=component)
    if kind in _REWARD:
        return MetricName(name=name, group="component" if rest else "reward", component=rest or None)
    group: Group = "training"
    if kind in ("time", "failures"):
        group = "time" if kind == "time" else "failure"
    elif name == "tokens_per_second":
        group = "time"
    elif name in _ROLLOUT:
        group = "rollout"
    return MetricName(name=name, group=group, component=None)
