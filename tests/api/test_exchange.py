"""Requests over a real socket: limits on bodies, headers, and what the log says."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx
import pytest

from served import served, services
from strop.services.container import Services, Settings

MiB = 1024 * 1024


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    with services(tmp_path_factory.mktemp("data"), settings=Settings(max_body_bytes=MiB)) as given:
        yield given


@pytest.fixture(scope="module")
def url(given: Services) -> Iterator[str]:
    with served(given) as url:
        yield url.removesuffix("/v1")


def raw(url: str, *parts: bytes) -> bytes:
    """What comes back for bytes sent as they are, up to the end of the connection."""
    address = urlsplit(url)
    with socket.create_connection((address.hostname, address.port), timeout=30) as connection:
        for part in parts:
            connection.sendall(part)
        answer = b""
        while chunk := connection.recv(65536):
            answer += chunk
    return answer


def test_a_body_over_the_limit_is_refused_by_its_announced_length(url: str) -> None:
    answer = httpx.post(f"{url}/v1/strop/keys", json={"name": "x" * 2 * MiB})
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large")


def test_a_body_over_the_limit_is_refused_while_it_streams(url: str) -> None:
    sent = threading.Event()

    def endless() -> Iterator[bytes]:
        yield b'{"name": "'
        for _ in range(32):
            yield b"x" * MiB
        sent.set()

    answer = httpx.post(f"{url}/v1/strop/keys", content=endless(), headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large")
    assert sent.is_set()  # the client was let finish, or it would have seen a broken connection instead


def test_a_body_is_counted_whatever_its_announced_length_says(url: str) -> None:
    head = b"POST /v1/strop/keys HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n"
    answer = raw(url, head + b"content-length: 12\r\n\r\n", b'{"name":"a"}' + b"x" * 100)
    assert b" 201 " in answer.splitlines()[0]


def test_a_client_that_asks_before_it_sends_is_answered_at_once(url: str) -> None:
    head = b"POST /v1/strop/keys HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n"
    answer = raw(url, head + b"expect: 100-continue\r\ncontent-length: 99999999\r\n\r\n")
    assert b" 413 " in answer.splitlines()[0]


def test_a_refused_upload_is_told_why(url: str) -> None:
    headers = {"origin": "http://evil.example"}
    answer = httpx.post(f"{url}/v1/files", files={"file": b"x" * 8 * MiB}, data={"purpose": "batch"}, headers=headers)
    assert answer.status_code == 403


def test_an_upload_may_be_larger_than_other_bodies(url: str) -> None:
    answer = httpx.post(f"{url}/v1/files", files={"file": ("a.bin", b"x" * 2 * MiB)}, data={"purpose": "batch"})
    assert answer.json()["bytes"] == 2 * MiB


def test_every_answer_has_an_id_of_its_own(url: str) -> None:
    ids = {httpx.get(url + path).headers["x-request-id"] for path in ("/health", "/health", "/v1/nothing", "/metrics")}
    assert len(ids) == 4


@pytest.mark.parametrize("path", ["/health", "/v1/strop/keys", "/v1/nothing", "/v1/files/<script>alert(1)</script>"])
def test_an_answer_is_for_no_browser_to_run_frame_or_keep(url: str, path: str) -> None:
    headers = httpx.get(url + path).headers
    assert headers["content-type"] == "application/json"
    assert headers["x-content-type-options"] == "nosniff"
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert headers["referrer-policy"] == "same-origin"
    assert headers["cache-control"] == "no-store"


def test_the_log_has_no_query_no_header_and_no_forged_line(url: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "strop.api"):
        headers = {"authorization": "Bearer sk-rosebud"}
        done = httpx.get(f"{url}/v1/x%0aforged?api_key=sk-rosebud", headers=headers).headers["x-request-id"]
        while done not in caplog.text:  # written after the answer
            time.sleep(0.01)
    (line,) = (record.getMessage() for record in caplog.records if done in record.getMessage())
    assert r"GET '/v1/x\nforged' 404" in line
    assert "rosebud" not in caplog.text
