"""Keys and secrets over the API: shown once, or never."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from served import services
from strop.api.app import create_app
from strop.services.container import Services


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    with services(tmp_path_factory.mktemp("data")) as given:
        yield given


@pytest.fixture(scope="module")
def client(given: Services) -> TestClient:
    return TestClient(create_app(given), base_url="http://localhost:8100")


def test_a_key_is_shown_when_it_is_made_and_never_again(client: TestClient, given: Services) -> None:
    answer = client.post("/v1/strop/keys", json={"name": "laptop"})
    assert answer.status_code == 201
    made = answer.json()
    assert given.keys.verify(made["key"]) is not None
    listed = client.get("/v1/strop/keys").json()
    assert listed["data"][0]["id"] == made["id"]
    assert isinstance(listed["data"][0]["created_at"], int)
    assert made["key"] not in str(listed)


def test_a_revoked_key_says_when(client: TestClient, given: Services) -> None:
    made = client.post("/v1/strop/keys", json={"name": "old"}).json()
    assert client.delete(f"/v1/strop/keys/{made['id']}").json()["revoked_at"] is not None
    assert given.keys.verify(made["key"]) is None
    assert client.delete("/v1/strop/keys/key_0").status_code == 404


@pytest.mark.parametrize("body", [{}, {"name": ""}, {"name": "x" * 65}, {"name": " "}, {"name": "a", "nam": 1}, []])
def test_a_key_needs_a_name_and_nothing_else(client: TestClient, body: object) -> None:
    assert client.post("/v1/strop/keys", json=body).status_code == 400


def test_a_secret_goes_in_and_never_comes_out(client: TestClient, given: Services) -> None:
    answer = client.put("/v1/strop/secrets/JUDGE_KEY", json={"value": "rosebud"})
    assert answer.json()["name"] == "JUDGE_KEY"
    listed = client.get("/v1/strop/secrets")
    assert [secret["id"] for secret in listed.json()["data"]] == ["JUDGE_KEY"]
    assert "rosebud" not in answer.text + listed.text
    assert given.secrets.reveal(["JUDGE_KEY"]) == {"JUDGE_KEY": "rosebud"}
    assert client.delete("/v1/strop/secrets/JUDGE_KEY").json()["deleted"] is True
    assert client.delete("/v1/strop/secrets/JUDGE_KEY").status_code == 404


@pytest.mark.parametrize(
    ("name", "body", "param"),
    [
        ("1st", {"value": "rosebud"}, "name"),
        ("TOKEN", {"value": ""}, "value"),
        ("TOKEN", {"value": "rosebud\0"}, "value"),
        ("TOKEN", {"value": "rosebud" * 10_000}, "value"),
        ("TOKEN", {"value": 17}, "value"),
        ("TOKEN", {"valeu": "rosebud"}, "valeu"),
    ],
)
def test_a_refused_secret_names_the_field_and_not_the_value(
    client: TestClient, name: str, body: dict[str, object], param: str
) -> None:
    answer = client.put(f"/v1/strop/secrets/{name}", json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
    assert "rosebud" not in answer.text
