"""Environment variables for rewards and judges. Values go in, never out."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from strop.services.container import Services
from strop.services.threads import in_thread
from strop.store import secrets


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


@in_thread
def list_all(services: Services) -> list[Secret]:
    """All secrets, without their values."""
    return [Secret.of(secret) for secret in services.secrets.names()]


@in_thread
def store(services: Services, name: str, value: str) -> Secret:
    """Store a secret, or replace its value. InvalidRequest for a bad name."""
    return Secret.of(services.secrets.set(name, value))


@in_thread
def delete(services: Services, name: str) -> None:
    """Delete a secret. NotFound for an unknown one."""
    services.secrets.delete(name)
