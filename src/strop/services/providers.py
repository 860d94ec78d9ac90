"""OpenAI-compatible endpoints by name, each with the secret that holds its key, and the models that they list."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from strop.endpoints.addresses import check_url
from strop.endpoints.client import model_names
from strop.endpoints.server import Server
from strop.endpoints.transport import guarded_http
from strop.errors import InvalidRequest, NotFound
from strop.evals.spec import check_endpoint
from strop.http.bodies import Body
from strop.services.container import Services
from strop.services.threads import in_thread
from strop.store import providers
from strop.store.providers import ProviderStore


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


@in_thread
def list_all(services: Services) -> list[Provider]:
    """All providers."""
    return [Provider.of(provider) for provider in ProviderStore(services.database).list()]


@in_thread
def get(services: Services, name: str) -> Provider:
    """One provider. NotFound for an unknown one."""
    return Provider.of(ProviderStore(services.database).get(name))


@in_thread
def store(services: Services, name: str, new: NewProvider) -> Provider:
    """Store a provider, or replace it. InvalidRequest for an address that must not be asked."""
    check_address(new.base_url, "base_url")
    return Provider.of(ProviderStore(services.database).set(name, new.base_url, new.api_key_env))


@in_thread
def delete(services: Services, name: str) -> None:
    """Delete a provider. NotFound for an unknown one."""
    ProviderStore(services.database).delete(name)


async def models(services: Services, provider: Provider) -> list[str]:
    """What the endpoint lists, asked with its key.

    Raises InvalidRequest for a secret that is not there, and as `check_address` and `model_names` do.
    """
    key = await _key(services, provider)
    server = Server(provider.base_url, key, provider.api_key_env)
    return await model_names(server, guarded_http())


def check_address(base_url: str, param: str) -> None:
    """InvalidRequest, naming `param`, for what cannot be the address of an endpoint, or must not be asked."""
    check_url(base_url, allow_private=True, setting=param)
    try:
        check_endpoint(base_url)
    except ValueError as error:
        raise InvalidRequest(str(error), param=param) from None


@in_thread
def _key(services: Services, provider: Provider) -> str | None:
    check_address(provider.base_url, "base_url")
    name = provider.api_key_env
    if name is None:
        return None
    try:
        return services.secrets.reveal([name])[name]
    except NotFound:
        problem = f"no secret of this server is called {name}; store the key of {provider.name} under this name"
        raise InvalidRequest(problem, param="api_key_env") from None
