"""The client of an OpenAI-compatible endpoint, and what it says when it refuses. `strop.endpoints` takes over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from strop.errors import ConfigError

try:
    import openai
except ImportError:  # an extra: `open_client` says so
    openai = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from openai import AsyncOpenAI

RETRIES = 5
"""Further tries after 408, 409, 429, a server's error or a lost connection; `Retry-After` counts up to 2 minutes."""
READ_TIMEOUT_S = 300.0


def open_client(base_url: str, key: str | None, http_client: Any = None, retries: int = RETRIES) -> AsyncOpenAI:
    """A client that follows no redirect, and sends `key` to this endpoint only.

    Without a key none from the environment is sent. ConfigError where openai is not installed.
    """
    if openai is None:
        raise ConfigError('outside models need the openai package; install it with: pip install "strop[graders]"')
    return openai.AsyncOpenAI(
        base_url=base_url,
        api_key=key or "none",  # local servers ask for none, and the client for something
        admin_api_key="",
        max_retries=retries,
        timeout=READ_TIMEOUT_S,
        http_client=http_client or openai.DefaultAsyncHttpxClient(follow_redirects=False),
    )


def said(client: AsyncOpenAI, error: openai.APIStatusError) -> str:
    """What the server says about a refusal."""
    body = error.body
    text = body.get("message") if isinstance(body, dict) else body
    return _clean(client, str(text or error.message))


def reason(client: AsyncOpenAI, error: Exception) -> str:
    """Why there is no answer. A lost connection says so one level down."""
    cause = error.__cause__
    text = str(error) if isinstance(error, openai.APIError) else f"{type(error).__name__}: {error}"
    return _clean(client, f"{text} {cause}" if cause is not None and str(cause) not in text else text)


def _clean(client: AsyncOpenAI, text: str) -> str:
    """One line of bounded length, without the key, should a server repeat it."""
    key = client.api_key
    line = " ".join(text.replace(key, "[redacted]").split() if len(key) > 4 else text.split())
    return line if len(line) <= 500 else line[:500] + "…"
