"""`/v1/strop/secrets`: environment variables for rewards and judges. Values go in, never out."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field, SecretStr

from strop.api.dependencies import Provided
from strop.api.paging import Page, page
from strop.http.bodies import Body
from strop.store import secrets

router = APIRouter(prefix="/secrets")


class NewValue(Body):
    """The value of a secret."""

    value: SecretStr = Field(description="Stored encrypted, given to the processes that name it, shown never again.")


class Secret(BaseModel):
    """A secret, without its value."""

    object: Literal["strop.secret"] = "strop.secret"
    id: str = Field(description="Its name.")
    name: str = Field(description="Of the environment variable.")
    created_at: int
    updated_at: int

    @classmethod
    def of(cls, secret: secrets.Secret) -> Secret:
        return cls(
            id=secret.name, name=secret.name, created_at=int(secret.created_at), updated_at=int(secret.updated_at)
        )


class DeletedSecret(BaseModel):
    """A secret that is gone."""

    object: Literal["strop.secret"] = "strop.secret"
    id: str
    deleted: bool = True


@router.get("")
def list_secrets(services: Provided) -> Page[Secret]:
    """Names of all secrets."""
    found = [Secret.of(secret) for secret in services.secrets.names()]
    return page(found, len(found))


@router.put("/{name}")
def set_secret(name: str, body: NewValue, services: Provided) -> Secret:
    """Store a secret, or replace its value."""
    return Secret.of(services.secrets.set(name, body.value.get_secret_value()))


@router.delete("/{name}")
def delete_secret(name: str, services: Provided) -> DeletedSecret:
    """Forget a secret. Processes that have it keep it until they end."""
    services.secrets.delete(name)
    return DeletedSecret(id=name)
