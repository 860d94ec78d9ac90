"""What the server says of itself: health, metrics, the machine, its own description."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families

from served import services
from strop import __version__
from strop.api.app import create_app
from strop.errors import Unavailable
from strop.serve.state import EngineState, ModelState
from strop.services import machine
from strop.services.container import Services
from strop.store.tables import deployments

MODEL = ModelState("m", "m", None, memory_bytes=1, cache_bytes=1, in_flight=3, queued=2, max_length=None)


@dataclass
class FakeEngine:
    """A model process with two models, or none that answers."""

    up: bool | None = True

    async def state(self) -> EngineState | None:
        if self.up is None:
            return None
        if not self.up:
            raise Unavailable("the model process is not running")
        return EngineState((MODEL, MODEL), 2, 2, "cpu")


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def given(tmp_path: Path, engine: FakeEngine) -> Iterator[Services]:
    with services(tmp_path, engine=engine) as given:
        yield given


@pytest.fixture
def client(given: Services) -> TestClient:
    return TestClient(create_app(given), base_url="http://localhost:8100")


def numbers(client: TestClient) -> dict[tuple[str, ...], float]:
    """Values by name and labels."""
    answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = text_string_to_metric_families(answer.text)
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def test_health_is_short(client: TestClient) -> None:
    assert client.get("/health").json() == {"status": "ok", "version": __version__}


def test_health_needs_the_database(client: TestClient, given: Services, tmp_path: Path) -> None:
    given.database.close()
    (tmp_path / "strop.db").rename(tmp_path / "away")
    (tmp_path / "strop.db").mkdir()
    answer = client.get("/health")
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "unavailable")


def test_requests_are_counted_by_route_and_status(client: TestClient) -> None:
    for path in ("/v1/files/file-1", "/v1/files/file-2", "/v1/nothing", "/v1/more/of/it", "/favicon.ico"):
        client.get(path)
    client.request("MADEUP", "/health")
    found = numbers(client)
    assert found["strop_requests_total", "GET", "/v1/files/{file_id}", "404"] == 2
    assert found["strop_request_seconds_count", "/v1/files/{file_id}"] == 2
    assert not [key for key in found if "MADEUP" in key or any("favicon" in str(part) for part in key)]


def test_metrics_tell_of_jobs_rollouts_models_and_tokens(client: TestClient, given: Services) -> None:
    with given.database.write() as connection:
        values = {"id": "dep_1", "created_at": 0.0, "name": "mine", "source": "s", "path": "p", "wanted": "loaded"}
        connection.execute(deployments.insert().values(**values, requests=2, prompt_tokens=30, completion_tokens=40))
    found = numbers(client)
    assert found["strop_jobs", "queued"] == 0
    assert found[("strop_rollouts_ingested_total",)] == 0
    assert found["strop_engine_completions", "decoding"] == 6
    assert found["strop_engine_completions", "queued"] == 4
    assert found["strop_chat_tokens_total", "mine", "prompt"] == 30
    assert found["strop_chat_tokens_total", "mine", "completion"] == 40
    assert found["strop_info", __version__] == 1


@pytest.mark.parametrize("up", [False, None])
def test_metrics_come_without_a_model_process_too(client: TestClient, engine: FakeEngine, up: bool | None) -> None:
    engine.up = up
    assert numbers(client)["strop_jobs", "running"] == 0


def test_the_machine_is_described(client: TestClient, tmp_path: Path) -> None:
    system = client.get("/v1/strop/system").json()
    assert system["version"] == __version__
    assert system["versions"]["python"]
    assert system["devices"][0]["id"] == "cpu"
    assert 0 < system["memory_available_bytes"] <= system["memory_bytes"]
    assert 0 < system["disk"]["free_bytes"] <= system["disk"]["total_bytes"]
    assert (system["data_folder"], system["database"]) == (str(tmp_path), "sqlite")
    assert system["isolation"]["not_enforced"]


def test_gpus_are_asked_of_the_driver(tmp_path: Path) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho '0, NVIDIA H200, 143771, 512, 37'\necho '1, Odd, [N/A], [N/A], [N/A]'\n")
    program.chmod(0o755)
    gpu, odd = machine.gpus(os.pathsep.join([str(tmp_path), os.defpath]))
    assert (gpu.id, gpu.name, gpu.memory_bytes, gpu.utilization) == ("cuda:0", "NVIDIA H200", 143771 * 2**20, 0.37)
    assert (odd.id, odd.memory_bytes, odd.utilization) == ("cuda:1", 0, None)
    program.write_text("#!/bin/sh\necho 'NVIDIA-SMI has failed'\nexit 9\n")
    assert machine.gpus(str(tmp_path)) == []
    assert machine.gpus(str(tmp_path / "none")) == []


def test_the_description_is_complete_and_needs_nothing_from_elsewhere(client: TestClient) -> None:
    document = client.get("/openapi.json").json()
    assert document["info"]["version"] == __version__
    operations = [op for path in document["paths"].values() for op in path.values()]
    assert len({operation["operationId"] for operation in operations}) == len(operations)
    undocumented = [operation["operationId"] for operation in operations if not operation.get("description")]
    assert undocumented == []
    for path in ("/docs", "/redoc"):
        assert client.get(path).status_code == 404
