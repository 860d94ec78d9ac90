"""The HTTP client of an endpoint, and the list of its models."""

from __future__ import annotations

import asyncio

import httpx2
import openai

from strop.endpoints.addresses import BlockedAddress
from strop.endpoints.problems import problem_of
from strop.endpoints.server import Server
from strop.endpoints.transport import CONNECT_TIMEOUT_S
from strop.errors import ConfigError, Unavailable

LIST_TIMEOUT_S = 15.0
"""A person waits for the list."""


def open_client(server: Server, http: httpx2.AsyncClient | None = None) -> openai.AsyncOpenAI:
    """Open a client that follows no redirect, retries nothing by itself, and sends the key to this server only.

    Without a key none from the environment is sent. `http` is `guarded_http()` for addresses that
    somebody else wrote.
    """
    timeout = httpx2.Timeout(None, connect=CONNECT_TIMEOUT_S)
    return openai.AsyncOpenAI(
        base_url=server.base_url,
        api_key=server.key or "none",  # local servers ask for none, and the client for something
        admin_api_key="",
        max_retries=0,
        timeout=timeout,
        http_client=http or openai.DefaultAsyncHttpxClient(follow_redirects=False, timeout=timeout),
    )


async def model_names(server: Server, http: httpx2.AsyncClient | None = None) -> list[str]:
    """List the models of an endpoint: proof that its address and its key work.

    Raises ConfigError where it refuses or is no such endpoint, Unavailable where nothing answers,
    BlockedAddress for an address that is out of bounds.
    """
    try:
        async with asyncio.timeout(LIST_TIMEOUT_S), open_client(server, http) as client:
            return sorted({model.id async for model in client.models.list()})
    except TimeoutError:
        raise Unavailable(f"{server.base_url} did not answer within {LIST_TIMEOUT_S:.0f} s") from None
    except (openai.APIStatusError, openai.APIConnectionError) as error:
        if isinstance(error.__cause__, BlockedAddress):
            raise error.__cause__ from None
        problem = problem_of(error, server)
        kind = Unavailable if problem.temporary else ConfigError
        raise kind(f"{server.base_url}: {problem.message}") from None
    except (openai.OpenAIError, AttributeError, TypeError, ValueError) as error:  # a page of HTML, other JSON
        found = server.clean(f"{type(error).__name__}: {error}")
        hint = "check base_url; most end with /v1"
        raise ConfigError(f"{server.base_url} does not answer with a list of models: {found}; {hint}") from None
