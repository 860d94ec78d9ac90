"""`/v1/strop/runs/{id}/findings`: warning signs in the curves of a run."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from strop.api.answers import NOT_MODIFIED, Cached, RunId
from strop.api.dependencies import Provided
from strop.services import findings, runs
from strop.services.findings import FindingList

router = APIRouter()


@router.get("/runs/{run_id}/findings", responses=NOT_MODIFIED, response_model=FindingList)
async def list_findings(run_id: RunId, services: Provided, cached: Cached) -> FindingList | Response:
    """Warning signs, with evidence, likely cause and what to do. Empty while a run is healthy or young."""
    if (known := cached.unchanged(*await runs.fresh_stamp(services, run_id))) is not None:
        return known
    return await findings.of_run(services, run_id)
