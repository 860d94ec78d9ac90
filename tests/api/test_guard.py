"""What browsers may send to a server on this machine, and what nobody may."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from starlette.websockets import WebSocket, WebSocketDisconnect

from served import services
from strop.api.app import create_app
from strop.api.guard import is_loopback

OWN = "http://localhost:8100"
STREAM = {"accept": "text/event-stream"}


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FastAPI]:
    with services(tmp_path_factory.mktemp("data")) as given:
        yield create_app(given)


@pytest.fixture(scope="module")
def client(app: FastAPI) -> TestClient:
    return TestClient(app, base_url=OWN)


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:8100", "LOCALHOST:1", "127.0.0.1:8100", "[::1]:8100", "[::1]"]
)
def test_this_machine_has_several_names(client: TestClient, host: str) -> None:
    assert client.get("/health", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8100", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1", "0.0.0.0",
     "localhost@evil.example", "", "[::1", "[fe80::1]:8100", "localhost.", "127.1"],
)  # fmt: skip
@pytest.mark.parametrize("path", ["/health", "/v1/strop/keys", "/metrics", "/openapi.json", "/nothing"])
def test_a_foreign_host_is_refused_everywhere(client: TestClient, host: str, path: str) -> None:
    answer = client.get(path, headers={"host": host})
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "forbidden")


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "null", "http://localhost:3000", "http://localhost", "http://127.0.0.1:8100", "file://",
     "http://localhost:8100.evil.example", "http://localhost:8100@evil.example", "", "localhost:8100"],
)  # fmt: skip
def test_a_page_of_another_origin_changes_nothing(client: TestClient, origin: str) -> None:
    answer = client.post("/v1/strop/keys", json={"name": "evil"}, headers={"origin": origin})
    assert answer.status_code == 403
    assert "evil" not in client.get("/v1/strop/keys").text
    assert client.get("/v1/strop/keys", headers={"origin": origin, **STREAM}).status_code == 403


@pytest.mark.parametrize("site", ["cross-site", "same-site", "anything"])
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "GET", "HEAD"])
def test_a_request_from_elsewhere_is_refused(client: TestClient, site: str, method: str) -> None:
    answer = client.request(method, "/v1/strop/keys", headers={"sec-fetch-site": site})
    assert answer.status_code == 403


def test_our_own_pages_may_do_everything(client: TestClient) -> None:
    own = {"origin": OWN, "sec-fetch-site": "same-origin", "sec-fetch-mode": "cors"}
    assert client.post("/v1/strop/keys", json={"name": "mine"}, headers=own).status_code == 201
    assert client.get("/v1/strop/keys", headers=own).status_code == 200


def test_a_link_from_elsewhere_may_be_followed(client: TestClient) -> None:
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    assert client.get("/v1/strop/keys", headers=link).status_code == 200
    assert client.post("/v1/strop/keys", json={"name": "x"}, headers=link).status_code == 403
    for dest in ("iframe", "object", "script", "image"):
        assert client.get("/v1/strop/keys", headers={**link, "sec-fetch-dest": dest}).status_code == 403


def test_a_client_that_is_no_browser_needs_no_header(client: TestClient) -> None:
    assert client.post("/v1/strop/keys", json={"name": "script"}).status_code == 201


def test_no_answer_lets_other_origins_read_it(client: TestClient) -> None:
    preflight = {"origin": "http://evil.example", "access-control-request-method": "POST"}
    for answer in (client.options("/v1/strop/keys", headers=preflight), client.get("/v1/strop/keys")):
        assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    "headers", [{"origin": "http://evil.example"}, {"host": "evil.example"}, {"sec-fetch-site": "cross-site"}]
)
def test_a_foreign_page_opens_no_websocket(app: FastAPI, client: TestClient, headers: dict[str, str]) -> None:
    async def echo(socket: WebSocket) -> None:
        await socket.accept()
        await socket.close()

    path = f"/socket/{len(app.routes)}"
    app.add_api_websocket_route(path, echo)
    own = {"host": "localhost:8100", "origin": OWN, "sec-fetch-site": "same-origin"}
    with client.websocket_connect(path, headers=own):
        pass
    with pytest.raises(WebSocketDisconnect), client.websocket_connect(path, headers={**own, **headers}):
        pass


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "text/json", ""])
def test_only_json_and_forms_with_files_are_bodies(client: TestClient, kind: str) -> None:
    answer = client.post("/v1/strop/keys", content=b'{"name": "evil"}', headers={"content-type": kind})
    assert (answer.status_code, answer.json()["error"]["code"]) == (415, "unsupported_media_type")
    assert "evil" not in client.get("/v1/strop/keys").text


def test_a_body_in_the_wrong_form_is_refused(client: TestClient) -> None:
    assert client.post("/v1/strop/keys", files={"name": b"evil"}).status_code == 400
    assert client.post("/v1/files", json={"purpose": "fine-tune"}).status_code == 400


def test_no_body_needs_no_type(client: TestClient) -> None:
    assert client.delete("/v1/strop/keys/key_0").status_code == 404
    assert client.delete("/v1/strop/keys/key_0", headers={"content-type": "application/json"}).status_code == 404


@pytest.mark.parametrize(
    ("host", "own"),
    [("localhost", True), ("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("0.0.0.0", False), ("::", False),
     ("192.168.0.2", False), ("myhost", False), ("", False)],
)  # fmt: skip
def test_only_the_loopback_interface_is_this_machine(host: str, own: bool) -> None:
    assert is_loopback(host) is own
