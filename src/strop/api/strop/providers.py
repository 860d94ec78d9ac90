"""`/v1/strop/providers`: OpenAI-compatible endpoints by name, each with the secret that holds its key."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field

from strop.api.dependencies import Provided
from strop.api.outside import check_address, provided_models
from strop.api.paging import Page, page
from strop.http.bodies import Body
from strop.store import providers
from strop.store.providers import ProviderStore

router = APIRouter(prefix="/providers")


class NewProvider(Body):
    """Where the endpoint is."""

    base_url: str = Field(max_length=2000, description="Address of the endpoint, `/v1` included.")
    api_key_env: str | None = Field(
        None, min_length=1, max_length=128, description="Name of the secret that holds the key; none for none."
    )


class Provider(BaseModel):
    """An endpoint with a name."""

    object: Literal["strop.provider"] = "strop.provider"
    id: str = Field(description="Its name.")
    name: str
    base_url: str
    api_key_env: str | None
    created_at: int
    updated_at: int

    @classmethod
    def of(cls, found: providers.Provider) -> Provider:
        return cls(
            id=found.name,
            name=found.name,
            base_url=found.base_url,
            api_key_env=found.api_key_env,
            created_at=int(found.created_at),
            updated_at=int(found.updated_at),
        )


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
def list_providers(services: Provided) -> Page[Provider]:
    """All providers."""
    found = [Provider.of(provider) for provider in ProviderStore(services.database).list()]
    return page(found, len(found))


@router.put("/{name}")
def set_provider(name: str, body: NewProvider, services: Provided) -> Provider:
    """Store a provider, or replace it. The key itself goes into a secret."""
    check_address(body.base_url, "base_url")
    return Provider.of(ProviderStore(services.database).set(name, body.base_url, body.api_key_env))


@router.get("/{name}")
def get_provider(name: str, services: Provided) -> Provider:
    """One provider."""
    return Provider.of(ProviderStore(services.database).get(name))


@router.delete("/{name}")
def delete_provider(name: str, services: Provided) -> DeletedProvider:
    """Forget a provider. Evaluations that were made with it keep its address."""
    ProviderStore(services.database).delete(name)
    return DeletedProvider(id=name)


@router.get("/{name}/models")
async def list_provided_models(name: str, services: Provided) -> Page[ProvidedModel]:
    """What the endpoint offers, asked now: a proof that its address and its key work."""
    provider = ProviderStore(services.database).get(name)
    found = [ProvidedModel(id=model) for model in await provided_models(provider, services.secrets)]
    return page(found, len(found))
