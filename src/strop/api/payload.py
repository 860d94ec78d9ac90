"""What a body may be: JSON as it is defined, or a form with files.

Python's own reader also takes NaN, numbers that become infinite, and halves of surrogate pairs.
None of them can be stored or sent back, so they are refused before a route sees them.
"""

from __future__ import annotations

import msgspec
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from strop.api.errors import envelope
from strop.api.guard import has_body

JSON, FORM = "application/json", "multipart/form-data"


class Payload:
    """ASGI middleware: under /v1, bodies of another type are refused, and JSON is checked as a whole.

    Pages may send text and simple forms anywhere without asking, but not JSON.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope) if scope["type"] == "http" else Headers()
        if not scope.get("path", "").startswith("/v1/") or not has_body(headers):
            await self._app(scope, receive, send)
            return
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind == FORM:
            await self._app(scope, receive, send)
        elif kind != JSON:
            problem = f"the body is {kind or 'of no content type'}; send {JSON}"
            await envelope(415, problem, "unsupported_media_type")(scope, receive, send)
        elif (body := await _read(receive)) is not None:
            if (fault := json_fault(body)) is None:
                await self._app(scope, _replayed(body, receive), send)
            else:
                await envelope(400, f"the body is not valid JSON: {fault}", "invalid_json")(scope, receive, send)


def json_fault(body: bytes) -> str | None:
    """What is wrong with a JSON document; None where nothing is. Only blanks are no document, and fine."""
    if not body.strip():
        return None
    try:
        msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        return str(error).removeprefix("JSON is malformed: ")
    except RecursionError:
        return "it is nested too deeply"
    except ValueError as error:
        return str(error)
    return None


async def _read(receive: Receive) -> bytes | None:
    """The whole body; None where the client goes away before its end."""
    chunks = []
    while (message := await receive())["type"] == "http.request":
        chunks.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(chunks)
    return None


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Gives a body that was read already, then whatever comes."""
    left: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return left.pop() if left else await receive()

    return again
