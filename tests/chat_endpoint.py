"""An OpenAI-compatible endpoint in this process, which answers, refuses or breaks as a test tells it to."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


@dataclass(frozen=True)
class Reply:
    """What the server sends back."""

    status: int = 200
    body: Any = None
    """JSON, or bytes as they are."""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Asked:
    """One request as it came in."""

    path: str
    key: str | None
    body: dict[str, Any]


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up in the middle is what some tests are about."""


class ChatEndpoint:
    """Use as `with ChatEndpoint(answer) as endpoint`; `answer` is called for each request, by several threads."""

    def __init__(self, answer: Callable[[Asked], Reply]) -> None:
        self.asked: list[Asked] = []
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._reply({})

            def do_POST(self) -> None:
                self._reply(json.loads(self.rfile.read(int(self.headers["content-length"]))))

            def _reply(self, body: dict[str, Any]) -> None:
                asked = Asked(self.path, self.headers.get("authorization"), body)
                endpoint.asked.append(asked)
                reply = answer(asked)
                content = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
                self.send_response(reply.status)
                for name, value in {"content-type": "application/json", **reply.headers}.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = _Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def says(*texts: str | None, finish: str = "stop", tokens: int | None = None, **message: Any) -> Reply:
    """A completion with one choice for each text; `tokens` are all of theirs together."""
    choices = [
        {
            "index": index,
            "message": {"role": "assistant", "content": text, **message},
            "finish_reason": finish,
            "logprobs": None,
        }
        for index, text in enumerate(texts)
    ]
    count = sum(len(text or "") for text in texts) if tokens is None else tokens
    usage = {"prompt_tokens": 7, "completion_tokens": count, "total_tokens": 7 + count}
    return Reply(
        body={
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": "m",
            "choices": choices,
            "usage": usage,
        }
    )


def lists(*names: str) -> Reply:
    """The models of a server."""
    models = [{"id": name, "object": "model", "created": 1, "owned_by": "x"} for name in names]
    return Reply(body={"object": "list", "data": models})


def fails(status: int, message: str = "no", **headers: str) -> Reply:
    """An error in OpenAI's form; a retry is due at once."""
    return Reply(status, {"error": {"message": message, "type": "x"}}, {"retry-after-ms": "1", **headers})
