"""`/v1/strop/secrets`: environment variables for rewards and judges. Values go in, never out."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field, SecretStr

from strop.api.dependencies import Provided
from strop.api.paging import Page, page
from strop.http.bodies import Body
from strop.services import secrets
from strop.services.secrets import Secret

router = APIRouter(prefix="/secrets")


class NewValue(Body):
    """The value of a secret."""

    value: SecretStr = Field(description="Stored encrypted, given to the processes that name it, shown never again.")


class DeletedSecret(BaseModel):
    """A secret that is gone."""

    object: Literal["strop.secret"] = "strop.secret"
    id: str
    deleted: bool = True


@router.get("")
async def list_secrets(services: Provided) -> Page[Secret]:
    """Names of all secrets."""
    found = await secrets.list_all(services)
    return page(found, len(found))


@router.put("/{name}")
async def set_secret(name: str, body: NewValue, services: Provided) -> Secret:
    """Store a secret, or replace its value."""
    return await secrets.store(services, name, body.value.get_secret_value())


@router.delete("/{name}")
async def delete_secret(name: str, services: Provided) -> DeletedSecret:
    """Forget a secret. Processes that have it keep it until they end."""
    await secrets.delete(services, name)
    return DeletedSecret(id=name)
