"""Providers over the API, with a real endpoint behind one of them."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from chat_endpoint import ChatEndpoint, fails, lists
from strop.services.container import Services


def test_a_provider_is_set_listed_and_forgotten(client: TestClient) -> None:
    body = {"base_url": "https://api.openai.com/v1", "api_key_env": "OPENAI_API_KEY"}
    made = client.put("providers/openai", json=body).json()
    assert (made["id"], made["base_url"], made["api_key_env"]) == ("openai", *body.values())
    assert client.get("providers/openai").json() == made
    assert client.get("providers").json()["data"] == [made]
    assert client.delete("providers/openai").json()["deleted"] is True
    assert client.get("providers/openai").status_code == 404


def test_its_models_are_asked_with_the_secret_that_it_names(client: TestClient, server: Services) -> None:
    server.secrets.set("PROVIDER_KEY", "rosebud")
    with ChatEndpoint(lambda _: lists("large", "small")) as endpoint:
        client.put("providers/one", json={"base_url": endpoint.url, "api_key_env": "PROVIDER_KEY"})
        answer = client.get("providers/one/models")
    assert [model["id"] for model in answer.json()["data"]] == ["large", "small"]
    assert [asked.key for asked in endpoint.asked] == ["Bearer rosebud"]


def test_a_key_that_is_missing_or_refused_is_told(client: TestClient, server: Services) -> None:
    server.secrets.set("WRONG_KEY", "rosebud")
    with ChatEndpoint(lambda _: fails(401, "rosebud is wrong")) as endpoint:
        client.put("providers/one", json={"base_url": endpoint.url, "api_key_env": "NO_SUCH_KEY"})
        missing = client.get("providers/one/models")
        assert not endpoint.asked
        client.put("providers/one", json={"base_url": endpoint.url, "api_key_env": "WRONG_KEY"})
        refused = client.get("providers/one/models")
    assert missing.status_code == 400
    assert "no secret of this server is called NO_SUCH_KEY" in missing.json()["error"]["message"]
    assert refused.status_code == 400
    assert "401: the server refuses " in refused.json()["error"]["message"]
    assert "rosebud" not in refused.text


@pytest.mark.parametrize(
    "url",
    [
        "",
        "api.openai.com",
        "ftp://x/v1",
        "http://u:p@x/v1",
        "https://x/v1?a=1",
        "http://169.254.169.254/v1",
        "http://[",
    ],
)
def test_an_address_that_cannot_be_asked_is_refused(client: TestClient, url: str) -> None:
    answer = client.put("providers/bad", json={"base_url": url})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "base_url"
    assert client.get("providers/bad").status_code == 404
