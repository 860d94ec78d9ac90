"""Helper: a server with chat completions that answers as a script says, well or badly."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Reply = Callable[["Handler"], None]


class JudgeServer(ThreadingHTTPServer):
    """Answers request number n with reply number n, and all later ones with the last."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, replies: tuple[Reply, ...]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.replies = replies
        self.requests: list[dict[str, Any]] = []
        """Bodies, in the order in which they came."""
        self.headers: list[dict[str, str]] = []
        self.lock = threading.Lock()
        self.closing = threading.Event()
        self.under_way = 0
        self.most_under_way = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has gone away is what some tests are about."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: JudgeServer

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with self.server.lock:
            number = len(self.server.requests)
            self.server.requests.append(body)
            self.server.headers.append({name.lower(): value for name, value in self.headers.items()})
            self.server.under_way += 1
            self.server.most_under_way = max(self.server.most_under_way, self.server.under_way)
        try:
            self.server.replies[min(number, len(self.server.replies) - 1)](self)
        finally:
            with self.server.lock:
                self.server.under_way -= 1

    def answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in ({"content_type": "application/json", "content_length": str(len(body))} | headers).items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None: ...


@contextmanager
def serving(*replies: Reply) -> Iterator[JudgeServer]:
    """A server for the time of a test."""
    server = JudgeServer(replies)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.closing.set()
        server.shutdown()
        server.server_close()
        thread.join()


def completion(content: str | None, finish_reason: str = "stop", **message: Any) -> bytes:
    """A chat completion."""
    choice = {
        "index": 0,
        "finish_reason": finish_reason,
        "message": {"role": "assistant", "content": content, **message},
    }
    usage = {
        "prompt_tokens": 20,
        "completion_tokens": 5,
        "total_tokens": 25,
        "prompt_tokens_details": {"cached_tokens": 4},
    }
    whole = {"id": "c1", "object": "chat.completion", "created": 1, "model": "judge-2025", "choices": [choice]}
    return json.dumps(whole | {"usage": usage}).encode()


def says(content: str | None, finish_reason: str = "stop", **message: Any) -> Reply:
    """Answers with a completion."""
    return sends(200, completion(content, finish_reason, **message))


def scores(result: Any) -> Reply:
    """Answers with a result in the documented form."""
    steps = [{"description": "look", "conclusion": "fine"}]
    return says(json.dumps({"steps": steps, "result": result}))


def sends(status: int, body: bytes = b"", **headers: str) -> Reply:
    """Answers with this body."""
    return lambda handler: handler.answer(status, body, **headers)


def fails(status: int, message: str = "went wrong", **headers: str) -> Reply:
    """Answers with an error as OpenAI writes them."""
    error = {"message": message, "type": "error", "param": None, "code": None}
    return sends(status, json.dumps({"error": error}).encode(), **headers)


def hangs(handler: Handler) -> None:
    """Never answers."""
    handler.server.closing.wait()
    handler.close_connection = True


def drips(handler: Handler) -> None:
    """Sends a byte now and then, so that no time limit between bytes is ever reached."""
    handler.send_response(200)
    handler.send_header("content-length", "1000")
    handler.end_headers()
    while not handler.server.closing.wait(0.05):
        handler.wfile.write(b" ")
        handler.wfile.flush()


def resets(handler: Handler) -> None:
    """Breaks the connection off."""
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.connection.close()
    handler.close_connection = True


def floods(handler: Handler) -> None:
    """Sends more than anybody could want."""
    handler.send_response(200)
    handler.send_header("content-type", "application/json")
    handler.send_header("content-length", str(2**40))
    handler.end_headers()
    while not handler.server.closing.is_set():
        handler.wfile.write(b" " * 2**20)
