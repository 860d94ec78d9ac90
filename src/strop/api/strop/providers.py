"""`/v1/strop/providers`: OpenAI-compatible endpoints by name, each with the secret that holds its key."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel

from strop.api.dependencies import Provided
from strop.api.paging import Page, page
from strop.services import providers
from strop.services.providers import NewProvider, Provider

router = APIRouter(prefix="/providers")


class ProvidedModel(BaseModel):
    """A model that a provider lists."""

    object: Literal["strop.provided_model"] = "strop.provided_model"
    id: str


class DeletedProvider(BaseModel):
    """A provider that is gone."""

    object: Literal["strop.provider"] = "strop.provider"
    id: str
    deleted: bool = True


@router.get("")
async def list_providers(services: Provided) -> Page[Provider]:
    """All providers."""
    found = await providers.list_all(services)
    return page(found, len(found))


@router.put("/{name}")
async def set_provider(name: str, body: NewProvider, services: Provided) -> Provider:
    """Store a provider, or replace it. The key itself goes into a secret."""
    return await providers.store(services, name, body)


@router.get("/{name}")
async def get_provider(name: str, services: Provided) -> Provider:
    """One provider."""
    return await providers.get(services, name)


@router.delete("/{name}")
async def delete_provider(name: str, services: Provided) -> DeletedProvider:
    """Forget a provider. Evaluations that were made with it keep its address."""
    await providers.delete(services, name)
    return DeletedProvider(id=name)


@router.get("/{name}/models")
async def list_provided_models(name: str, services: Provided) -> Page[ProvidedModel]:
    """What the endpoint offers, asked now: a proof that its address and its key work."""
    provider = await providers.get(services, name)
    found = [ProvidedModel(id=model) for model in await providers.models(services, provider)]
    return page(found, len(found))
