"""strop's calls for deployments."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from fake_deployments import FakeDeployments
from served import services
from strop.api.app import create_app


@pytest.fixture
def deployed() -> FakeDeployments:
    return FakeDeployments()


@pytest.fixture
def client(tmp_path_factory: pytest.TempPathFactory, deployed: FakeDeployments) -> Iterator[TestClient]:
    with (
        services(tmp_path_factory.mktemp("data"), deployments=deployed) as given,
        TestClient(create_app(given), base_url="http://localhost/v1/strop/") as client,
    ):
        yield client


def test_a_deployment_shows_state_memory_and_usage(client: TestClient, deployed: FakeDeployments) -> None:
    made = client.post("deployments", json={"source": "smollm2-135m", "name": "chat", "idle_minutes": 0}).json()
    assert deployed.created == [("smollm2-135m", "chat", 0, True)]
    assert (made["name"], made["source"], made["status"], made["idle_minutes"]) == ("chat", "smollm2-135m", "loaded", 0)
    assert made["memory"] == {"weights_bytes": 1000, "cache_bytes": 10, "shared_base": None}
    assert (made["in_flight"], made["queued"], made["max_tokens"]) == (2, 3, 8192)
    assert made["usage"] == {"requests": 4, "prompt_tokens": 40, "completion_tokens": 400}


def test_the_command_is_safe_in_a_shell_whatever_the_name_holds(client: TestClient) -> None:
    made = client.post("deployments", json={"source": "x", "name": 'a\'; rm -rf "$HOME"'}).json()
    words = shlex.split(made["curl"])
    assert words[:2] == ["curl", "http://localhost/v1/chat/completions"]
    assert '"model": "a\'; rm -rf \\"$HOME\\""' in words[-1]


def test_a_deployment_is_found_by_id_and_by_a_name_with_slashes(client: TestClient) -> None:
    made = client.post("deployments", json={"source": "Qwen/Qwen3-0.6B"}).json()
    assert client.get(f"deployments/{made['id']}").json() == made
    assert client.get("deployments/Qwen%2FQwen3-0.6B").json() == made
    assert client.get("deployments/nothing").status_code == 404


def test_deployments_are_listed_newest_first(client: TestClient) -> None:
    ids = [client.post("deployments", json={"source": f"m{number}"}).json()["id"] for number in range(3)]
    first = client.get("deployments", params={"limit": 2}).json()
    assert ([entry["id"] for entry in first["data"]], first["has_more"]) == (ids[:0:-1], True)
    rest = client.get("deployments", params={"after": first["last_id"]}).json()
    assert ([entry["id"] for entry in rest["data"]], rest["has_more"]) == (ids[:1], False)


def test_a_deployment_is_unloaded_loaded_and_deleted(client: TestClient) -> None:
    made = client.post("deployments", json={"source": "m", "wait": False}).json()
    assert (made["status"], made["memory"]) == ("loading", None)
    assert client.post("deployments/m/unload").json()["status"] == "unloaded"
    assert client.post(f"deployments/{made['id']}/load").json()["status"] == "loaded"
    assert client.delete("deployments/m").json() == {"object": "deployment", "id": made["id"], "deleted": True}
    assert client.delete("deployments/m").status_code == 404


def test_a_name_in_use_is_a_conflict(client: TestClient) -> None:
    client.post("deployments", json={"source": "m"})
    answer = client.post("deployments", json={"source": "other", "name": "m"})
    assert answer.status_code == 409
    assert answer.headers["x-should-retry"] == "false"
