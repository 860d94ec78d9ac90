"""`/health` and `/metrics`: for what watches the server."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import cast

import sqlalchemy as sa
from fastapi import APIRouter, Request, Response
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool

from strop import __version__
from strop.api.dependencies import Provided
from strop.api.metrics import Metrics
from strop.errors import Unavailable

router = APIRouter()

_PATIENCE_S = 2.0


class Health(BaseModel):
    """That the server lives. Needs no key, and so says nothing else."""

    status: str
    version: str


@router.get("/health")
def health(services: Provided) -> Health:
    """Whether the server and its database answer; 503 where they do not."""
    with services.database.read() as connection:
        connection.execute(sa.text("SELECT 1"))
    return Health(status="ok", version=__version__)


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
async def metrics(request: Request, services: Provided) -> Response:
    """Counts and times in Prometheus's text format."""
    counted = cast(Metrics, request.app.state.metrics)
    # A model process that is down or busy must not hide the other numbers.
    with suppress(Unavailable, TimeoutError):
        state = await asyncio.wait_for(services.engine.state(), _PATIENCE_S)
        models = state.models if state else ()
        counted.set_completions(
            decoding=sum(model.in_flight for model in models), queued=sum(model.queued for model in models)
        )
    text = await run_in_threadpool(counted.text)
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")
