"""What answers have in common: documented models, and `304` for what a client has already."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any

import msgspec
from fastapi import Depends, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from strop.services.objects import Answer, Deleted
from strop.types import Json

__all__ = ["NOT_MODIFIED", "Answer", "Cached", "Deleted", "FirstStep", "LastStep", "RunId"]

MAX_INT = 2**31 - 1
"""Largest number of a step, line or sample."""

_NO_CONTENT = {"description": "Nothing has changed since the answer with this ETag."}
NOT_MODIFIED: dict[int | str, dict[str, Any]] = {304: _NO_CONTENT}
"""For `responses` of routes that a client polls."""


class Conditional:
    """The validators of a request, and the headers of its answer."""

    def __init__(self, request: Request, response: Response) -> None:
        self._known = request.headers.get("if-none-match", "")
        self._response = response
        self._headers: dict[str, str] = {}

    def unchanged(self, *parts: Json) -> Response | None:
        """An empty answer where the client has what `parts` stand for; otherwise its tag is noted."""
        digest = hashlib.blake2b(json.dumps(parts, default=str).encode(), digest_size=12).hexdigest()
        tag = f'W/"{digest}"'
        self._headers = {"etag": tag, "cache-control": "no-cache"}
        known = {entry.strip().removeprefix("W/") for entry in self._known.split(",")}
        if f'"{digest}"' in known or "*" in known:
            return Response(status_code=304, headers=self._headers)
        self._response.headers.update(self._headers)
        return None

    def encoded(self, body: Json) -> Response:
        """The answer with its tag, past the models: for thousands of numbers, which have been checked before."""
        return Response(msgspec.json.encode(body), headers=self._headers, media_type="application/json")


Cached = Annotated[Conditional, Depends(Conditional)]
"""In a route: `if (known := cached.unchanged(…)) is not None: return known`."""

RunId = Annotated[str, Path(description="Id of a run, `run_…`.")]
FirstStep = Annotated[int | None, Query(ge=0, le=MAX_INT, description="Steps from this one on.")]
LastStep = Annotated[int | None, Query(ge=0, le=MAX_INT, description="Steps up to this one.")]
