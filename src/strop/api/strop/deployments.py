"""`/v1/strop/deployments`: models that answer under a name."""

from __future__ import annotations

import json
import shlex
from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.requests import Request

from strop.api.dependencies import Provided
from strop.api.paging import After, Limit, Page, page
from strop.http.bodies import Body
from strop.services.deployments import Deployment

router = APIRouter(prefix="/deployments")


class NewDeployment(Body):
    """A model to deploy."""

    source: str = Field(
        min_length=1,
        description="Catalogue name, Hugging Face id, folder, `ft:` name, or id of a checkpoint or a run.",
    )
    name: str | None = Field(None, min_length=1, max_length=200, description="By default that of the source.")
    idle_minutes: float | None = Field(None, ge=0, description="Unloaded after so long without a request; 0: never.")
    wait: bool = Field(True, description="Answer once it is loaded.")


class DeploymentUsage(BaseModel):
    """What was asked of a deployment so far."""

    requests: int
    prompt_tokens: int
    completion_tokens: int


class DeploymentMemory(BaseModel):
    """What a loaded deployment takes."""

    weights_bytes: int = Field(description="Of its own: for an adapter, without the base.")
    cache_bytes: int = Field(description="Keys and values of what is in flight.")
    shared_base: str | None = Field(description="Whose weights an adapter shares.")


class DeploymentObject(BaseModel):
    """A model that answers under a name."""

    object: Literal["deployment"] = "deployment"
    id: str
    name: str = Field(description="What `model` of a chat request says.")
    source: str
    created_at: int
    status: Literal["unloaded", "loading", "loaded", "failed"]
    reason: str | None = Field(description="Why it could not be loaded.")
    idle_minutes: float
    last_used_at: int | None
    usage: DeploymentUsage
    memory: DeploymentMemory | None = Field(description="null while it is not loaded.")
    in_flight: int = Field(description="Completions that are being decoded.")
    queued: int = Field(description="Completions that wait for a place.")
    max_tokens: int | None = Field(description="Prompt and completion together; null while it is not loaded.")
    curl: str = Field(description="A command that asks it.")


class DeletedDeployment(BaseModel):
    """A deployment that is gone."""

    object: Literal["deployment"] = "deployment"
    id: str
    deleted: bool = True


@router.post("")
async def create_deployment(body: NewDeployment, request: Request, services: Provided) -> DeploymentObject:
    """Let a model answer under a name."""
    made = await services.deployments.create(body.source, body.name, body.idle_minutes, body.wait)
    return _shown(made, request)


@router.get("")
async def list_deployments(
    request: Request, services: Provided, after: After = None, limit: Limit = 20
) -> Page[DeploymentObject]:
    """Deployments, the newest first."""
    found = await services.deployments.list(after, limit + 1)
    return page([_shown(deployment, request) for deployment in found], limit)


@router.post("/{key:path}/load")
async def load_deployment(key: str, request: Request, services: Provided) -> DeploymentObject:
    """Load it now instead of with the next request."""
    return _shown(await services.deployments.load(key), request)


@router.post("/{key:path}/unload")
async def unload_deployment(key: str, request: Request, services: Provided) -> DeploymentObject:
    """Free its memory; the next request loads it again."""
    return _shown(await services.deployments.unload(key), request)


@router.get("/{key:path}")
async def get_deployment(key: str, request: Request, services: Provided) -> DeploymentObject:
    """One deployment, by id or name."""
    return _shown(await services.deployments.get(key), request)


@router.delete("/{key:path}")
async def delete_deployment(key: str, services: Provided) -> DeletedDeployment:
    """Unload and forget it. The files of the model stay."""
    found = await services.deployments.get(key)
    await services.deployments.delete(found.id)
    return DeletedDeployment(id=found.id)


def _shown(deployment: Deployment, request: Request) -> DeploymentObject:
    engine = deployment.engine
    memory = None
    if engine is not None:
        memory = DeploymentMemory(
            weights_bytes=engine.memory_bytes, cache_bytes=engine.cache_bytes, shared_base=engine.base
        )
    return DeploymentObject(
        id=deployment.id,
        name=deployment.name,
        source=deployment.source,
        created_at=int(deployment.created_at),
        status=deployment.state.value,
        reason=deployment.reason,
        idle_minutes=deployment.idle_minutes,
        last_used_at=None if deployment.last_used_at is None else int(deployment.last_used_at),
        usage=DeploymentUsage(
            requests=deployment.requests,
            prompt_tokens=deployment.prompt_tokens,
            completion_tokens=deployment.completion_tokens,
        ),
        memory=memory,
        in_flight=engine.in_flight if engine else 0,
        queued=engine.queued if engine else 0,
        max_tokens=engine.max_length if engine else None,
        curl=_curl(deployment.name, request),
    )


def _curl(name: str, request: Request) -> str:
    """A command for a shell, whatever the name holds."""
    body = json.dumps({"model": name, "messages": [{"role": "user", "content": "Hello"}]}, ensure_ascii=False)
    parts = ["curl", shlex.quote(f"{request.base_url}v1/chat/completions"), "-H 'content-type: application/json'"]
    if "authorization" in request.headers:
        parts.append('-H "authorization: Bearer $STROP_API_KEY"')
    return " ".join([*parts, "-d", shlex.quote(body)])
