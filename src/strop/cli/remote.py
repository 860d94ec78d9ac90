"""Calls to a running server, using only the standard library."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from urllib.error import HTTPError, URLError
from urllib.request import ProxyHandler, Request, build_opener

from strop.errors import ServerError
from strop.types import Json

_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Remote:
    """A server at a URL. The API key, if required, is read from $STROP_API_KEY."""

    url: str

    def call(self, method: str, path: str, body: Json = None) -> Json:
        """Send one request and return the parsed response. Raises ServerError with the server's message."""
        headers = {"Accept": "application/json"}
        if key := os.environ.get("STROP_API_KEY"):
            headers["Authorization"] = f"Bearer {key}"
        data = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            data = json.dumps(body).encode()
        request = Request(self.url + path, data=data, headers=headers, method=method)
        # Never through a proxy: the server is on this machine, and the key for nobody else.
        opener = build_opener(ProxyHandler({}))
        try:
            with opener.open(request, timeout=_TIMEOUT_S) as response:
                return json.load(response)
        except HTTPError as error:
            raise ServerError(_explain(error)) from None
        except (URLError, OSError) as error:
            raise ServerError(f"{self.url}: {getattr(error, 'reason', error)}") from None


def _explain(error: HTTPError) -> str:
    try:
        message = str(json.load(error)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        message = f"{error.url}: returned status {error.code}"
    hint = "; set the API key in $STROP_API_KEY" if error.code == 401 else ""
    return message + hint


def server_missing(error: ModuleNotFoundError) -> ServerError:
    """Error message for a missing server package."""
    return ServerError(f"{error.name} is not installed; run: pip install 'strop[server]'")
