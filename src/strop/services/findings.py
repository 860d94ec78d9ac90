"""Warning signs in the curves of a run."""

from __future__ import annotations

import json
from typing import Literal

import sqlalchemy as sa
from sqlalchemy import Connection

from strop.insight.doctor import METRICS, diagnose
from strop.insight.findings import Curves, Finding, Severity
from strop.insight.trend import Curve
from strop.services.container import Services
from strop.services.objects import Answer
from strop.services.threads import in_thread
from strop.store import queries
from strop.store.queries.curves import MAX_POINTS
from strop.store.tables import runs


class EvidenceObject(Answer):
    """A metric that a finding rests on."""

    metric: str
    first_step: int
    last_step: int
    before: float
    """At the first of these steps, noise taken out; equal to `after` where a level is meant."""
    after: float
    text: str
    """The same in words."""


class FindingObject(Answer):
    """A pattern in the curves."""

    rule: str
    severity: Severity
    """`critical`: further training is wasted; `good`: as it should be, with something to check."""
    symptom: str
    cause: str
    """The likely one."""
    action: str
    """What to do about it."""
    evidence: list[EvidenceObject]


class FindingList(Answer):
    """What stands out in a run, the gravest first."""

    object: Literal["run.findings"] = "run.findings"
    run_id: str
    newest_step: int
    young: bool
    """Whether it is too early to judge anything but what is certain."""
    data: list[FindingObject]


@in_thread
def of_run(services: Services, run_id: str) -> FindingList:
    """What stands out in a run. Empty while a run is healthy or young. NotFound for an unknown run."""
    with services.database.read() as connection:
        curves = _curves(connection, run_id)
    return FindingList(
        run_id=run_id,
        newest_step=curves.newest,
        young=curves.young,
        data=[_object(found) for found in diagnose(curves)],
    )


def _curves(connection: Connection, run_id: str) -> Curves:
    failures = [name for name in queries.metric_names(connection, run_id) if name.startswith("failures/")]
    found = queries.series(connection, run_id, [*METRICS, *failures], points=MAX_POINTS)
    config = json.loads(connection.scalar(sa.select(runs.c.config).where(runs.c.id == run_id)) or "{}")
    batch = config["train"]
    return Curves(
        {name: Curve(curve["steps"], curve["values"]) for name, curve in found.items()},
        batch["batch_size"] * batch["samples_per_prompt"],
    )


def _object(finding: Finding) -> FindingObject:
    return FindingObject(
        **{**vars(finding), "evidence": [{**vars(found), "text": str(found)} for found in finding.evidence]}
    )
