"""Keys on a server that other machines reach."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from served import services
from strop.api.app import create_app
from strop.api.auth import COOKIE, RateLimit
from strop.errors import RateLimited
from strop.services.container import Services, Settings


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    settings = Settings(loopback=False, requests_per_minute=5)
    with services(tmp_path_factory.mktemp("data"), settings=settings) as given:
        yield given


@pytest.fixture(scope="module")
def client(given: Services) -> TestClient:
    return TestClient(create_app(given), base_url="http://strop.example")


def bearer(given: Services, name: str = "laptop") -> dict[str, str]:
    return {"authorization": f"Bearer {given.keys.create(name)[1]}"}


def test_a_key_opens_the_server(client: TestClient, given: Services) -> None:
    headers = bearer(given)
    assert client.get("/v1/strop/keys", headers=headers).json()["data"][0]["name"] == "laptop"
    assert given.keys.list()[0].last_used_at is not None
    assert client.get("/v1/strop/keys", headers={"authorization": headers["authorization"].lower()}).status_code == 401


def test_the_scheme_is_written_as_one_likes(client: TestClient, given: Services) -> None:
    text = bearer(given)["authorization"].removeprefix("Bearer ")
    assert client.get("/v1/strop/keys", headers={"authorization": f"bearer  {text}"}).status_code == 200


@pytest.mark.parametrize(
    "path", ["/v1/strop/keys", "/v1/nothing", "/metrics", "/openapi.json", "/", "/health/", "/Health"]
)
def test_without_a_key_nothing_answers(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")
    assert answer.headers["www-authenticate"] == "Bearer"


def test_a_browser_shows_its_key_as_a_cookie(client: TestClient, given: Services) -> None:
    cookie = {"cookie": f"{COOKIE}={given.keys.create('browser')[1]}"}
    assert client.get("/v1/strop/keys", headers=cookie).status_code == 200
    foreign = {**cookie, "origin": "http://evil.example"}
    assert client.delete("/v1/files/file-x", headers=foreign).json()["error"]["code"] == "forbidden"
    assert client.get("/v1/strop/keys", headers={"cookie": f"{COOKIE}=wrong"}).status_code == 401


def test_who_looks_for_a_page_is_shown_where_to_log_in(client: TestClient) -> None:
    answer = client.get("/experiments/x", headers={"accept": "text/html"}, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/login")
    assert client.get("/v1/files", headers={"accept": "text/html"}).status_code == 401


def test_health_needs_no_key(client: TestClient) -> None:
    assert client.get("/health").json()["status"] == "ok"


@pytest.mark.parametrize(
    "header", ["", "Bearer", "Bearer ", "Bearer wrong", "Basic c2s6c2s=", "sk-strop-x", "Bearer \xff"]
)
def test_another_header_is_no_key(client: TestClient, given: Services, header: str) -> None:
    bearer(given)
    answer = client.get("/v1/strop/keys", headers=[(b"authorization", header.encode("latin-1"))])
    assert answer.status_code == 401
    assert "wrong" not in answer.text


def test_a_key_in_the_query_does_not_count(client: TestClient, given: Services) -> None:
    text = bearer(given)["authorization"].removeprefix("Bearer ")
    assert client.get("/v1/strop/keys", params={"key": text, "api_key": text}).status_code == 401


def test_a_revoked_key_stops_at_once(client: TestClient, given: Services) -> None:
    headers = bearer(given)
    assert client.get("/v1/strop/keys", headers=headers).status_code == 200
    given.keys.revoke(given.keys.list()[0].id)  # the newest
    assert client.get("/v1/strop/keys", headers=headers).status_code == 401


def test_a_key_is_limited_and_told_when_to_come_back(client: TestClient, given: Services) -> None:
    first, second = bearer(given), bearer(given, "cluster")
    answers = [client.get("/v1/strop/keys", headers=first) for _ in range(6)]
    assert [answer.status_code for answer in answers] == [200] * 5 + [429]
    assert 1 <= int(answers[-1].headers["retry-after"]) <= 12
    assert client.get("/v1/strop/keys", headers=second).status_code == 200


def test_a_limit_fills_evenly() -> None:
    now = 0.0
    limit = RateLimit(60, clock=lambda: now)
    for _ in range(60):
        limit.take("key")
    for wait in (0.0, 0.5):
        now += wait
        with pytest.raises(RateLimited) as caught:
            limit.take("key")
        assert caught.value.retry_after == pytest.approx(1 - now)
    now = 1.0
    limit.take("key")
    now = 1000.0
    for _ in range(60):
        limit.take("key")
    with pytest.raises(RateLimited):
        limit.take("key")


def test_the_host_is_free_where_keys_are_demanded(client: TestClient, given: Services) -> None:
    headers = {**bearer(given), "host": "gpu-box.lan:8100"}
    assert client.get("/v1/strop/keys", headers=headers).status_code == 200
