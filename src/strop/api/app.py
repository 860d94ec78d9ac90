"""The application: middleware from the outside in, then one router for each noun.

A route that takes larger bodies than others says so with `max_body_size`.
"""

from __future__ import annotations

from fastapi import APIRouter, FastAPI
from fastapi.routing import iter_route_contexts

from strop import __version__
from strop.api import errors, health
from strop.api.auth import Auth, RateLimit
from strop.api.errors import CATCH_ALL, METHODS, no_such_path
from strop.api.exchange import Exchange
from strop.api.guard import Guard
from strop.api.metrics import Metrics
from strop.api.openai import chat, files, graders, jobs, models
from strop.api.payload import Payload
from strop.api.strop import (
    checkpoints,
    datasets,
    deployments,
    evaluation_rollouts,
    evaluations,
    keys,
    logs,
    providers,
    rewards,
    rollouts,
    runs,
    secrets,
    system,
)
from strop.api.strop import jobs as own_jobs
from strop.services.container import Services

OPENAI = (files, jobs, graders, models, chat)
STROP = (
    own_jobs,
    runs,
    rollouts,
    logs,
    datasets,
    rewards,
    checkpoints,
    deployments,
    evaluation_rollouts,
    evaluations,
    keys,
    secrets,
    providers,
    system,
)


def create_app(services: Services) -> FastAPI:
    """The API over given services. Starts nothing: `strop.app` does, and closes it again."""
    app = FastAPI(
        title="strop",
        version=__version__,
        docs_url=None,  # their pages fetch scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        responses={"4XX": {"model": errors.ErrorBody}, "5XX": {"model": errors.ErrorBody}},
    )
    app.state.services = services
    errors.install(app)
    v1 = APIRouter(prefix="/v1")
    for module in OPENAI:
        v1.include_router(module.router, tags=["openai"])
    for module in STROP:
        v1.include_router(module.router, prefix="/strop", tags=["strop"])
    app.include_router(v1)
    app.include_router(health.router, tags=["server"])
    app.add_api_route("/v1/{path:path}", no_such_path, methods=list(METHODS), name=CATCH_ALL, include_in_schema=False)
    _wrap(app, services)
    return app


def _wrap(app: FastAPI, services: Services) -> None:
    """Put middleware around the app; what is added last sees a request first."""
    settings = services.settings
    app.add_middleware(Payload)
    if settings.loopback:
        app.add_middleware(Guard)
    else:
        app.add_middleware(Auth, services.keys, RateLimit(settings.requests_per_minute))
    routes = list(iter_route_contexts(app.routes))
    metrics = Metrics(services.database, {route.endpoint: route.path_format or "" for route in routes})
    app.state.metrics = metrics
    larger = [(route.path_regex, route.max_body_size) for route in routes if getattr(route, "max_body_size", None)]

    def limit(path: str) -> int:
        return next((size for pattern, size in larger if pattern.match(path)), settings.max_body_bytes)

    app.add_middleware(Exchange, metrics.observe, limit)
