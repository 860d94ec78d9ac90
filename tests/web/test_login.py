"""Logging in with a key, where the server is not for this machine alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from served import services
from strop.api.auth import COOKIE
from strop.services.container import Services
from strop.store.keys import KeyStore
from strop.web.login import add_login


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    with services(tmp_path_factory.mktemp("server") / "data") as server:
        yield server


@pytest.fixture
def keys(server: Services) -> KeyStore:
    return server.keys


@pytest.fixture
def client(server: Services) -> TestClient:
    app = FastAPI()
    add_login(app, server)
    return TestClient(app, base_url="https://strop.example", follow_redirects=False)


def test_a_valid_key_is_kept_where_no_script_reads_it(client: TestClient, keys: KeyStore) -> None:
    _, text = keys.create("browser")
    answer = client.post("/login", data={"key": f" {text} "})
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"].lower()
    assert cookie.startswith(f"{COOKIE}={text}".lower())
    assert all(part in cookie for part in ("httponly", "samesite=strict", "secure", "path=/"))


@pytest.mark.parametrize("key", ["", "sk-strop-wrong", "<script>alert(1)</script>"])
def test_a_wrong_key_is_refused_and_not_shown(client: TestClient, key: str) -> None:
    answer = client.post("/login", data={"key": key})
    assert answer.status_code == 401
    assert "unknown or has been revoked" in answer.text
    assert "set-cookie" not in answer.headers
    assert not key or key not in answer.text


def test_guessing_is_slowed_down(client: TestClient) -> None:
    answers = [client.post("/login", data={"key": "guess"}).status_code for _ in range(25)]
    assert answers[0] == 401
    assert answers[-1] == 429
