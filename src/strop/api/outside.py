"""Models of other people's endpoints, as this server's providers name them."""

from __future__ import annotations

from strop.endpoints.addresses import check_url
from strop.endpoints.client import model_names
from strop.endpoints.server import Server
from strop.endpoints.transport import guarded_http
from strop.errors import InvalidRequest, NotFound
from strop.evals.spec import check_endpoint
from strop.store.providers import Provider
from strop.store.secrets import SecretStore


def check_address(base_url: str, param: str) -> None:
    """InvalidRequest, naming `param`, for what cannot be the address of an endpoint, or must not be asked."""
    check_url(base_url, allow_private=True, setting=param)
    try:
        check_endpoint(base_url)
    except ValueError as error:
        raise InvalidRequest(str(error), param=param) from None


async def provided_models(provider: Provider, secrets: SecretStore) -> list[str]:
    """What the endpoint lists, asked with its key.

    Raises InvalidRequest for a secret that is not there, and as `check_address` and `model_names` do.
    """
    check_address(provider.base_url, "base_url")
    server = Server(provider.base_url, _key(provider, secrets), provider.api_key_env)
    return await model_names(server, guarded_http())


def _key(provider: Provider, secrets: SecretStore) -> str | None:
    name = provider.api_key_env
    if name is None:
        return None
    try:
        return secrets.reveal([name])[name]
    except NotFound:
        problem = f"no secret of this server is called {name}; store the key of {provider.name} under this name"
        raise InvalidRequest(problem, param="api_key_env") from None
