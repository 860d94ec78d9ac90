"""What the routes of runs, data sets and rewards ask of a database: the same of both kinds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from run_folders import new_run, play
from served import services
from strop.api.app import create_app
from strop.store.rundir import RunDir

CODE = "def grade(sample, item): return 1"


@pytest.fixture
def client(database_url: str, tmp_path: Path) -> Iterator[TestClient]:
    with (
        services(tmp_path / "data", database_url) as given,
        TestClient(create_app(given), base_url="http://localhost/v1/strop/") as found,
    ):
        yield found


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    run = new_run(tmp_path / "run", "both")
    play(run, 1, 6)
    return run


def test_runs_are_listed_explored_and_forgotten(client: TestClient, run: RunDir) -> None:
    made = client.post("runs/import", json={"path": str(run.path)}).json()
    path = f"runs/{made['id']}"
    assert [
        found["id"] for found in client.get("runs", params={"search": "BOTH", "sort": "-reward"}).json()["data"]
    ] == [made["id"]]
    assert len(client.get("runs").json()["data"][0]["sparkline"]) == 6
    tag = client.get(f"{path}/metrics").headers["etag"]
    play(run, 7, 8)
    again = client.get(f"{path}/metrics", headers={"if-none-match": tag})
    assert again.json()["data"]["reward"]["steps"] == list(range(1, 9))
    prompts = client.get(f"{path}/prompts", params={"search": "question", "sort": "-reward", "count": True}).json()
    assert prompts["total"] == len(prompts["data"])
    row = prompts["data"][0]["id"]
    cells = client.get(f"{path}/prompts/{row}/heatmap").json()["cells"]
    rollouts = client.get(f"{path}/rollouts", params={"row": row, "component": "score", "sort": "-reward"}).json()
    assert {cell["id"] for cell in cells} == {rollout["id"] for rollout in rollouts["data"]}
    assert client.get(f"rollouts/{cells[0]['id']}/group").json()["step"] == cells[0]["step"]
    assert client.delete(path).json()["deleted"] is True


def test_numbers_and_texts_that_no_database_holds_are_no_errors_of_ours(client: TestClient, run: RunDir) -> None:
    run_id = client.post("runs/import", json={"path": str(run.path)}).json()["id"]
    for path in (f"runs/{run_id}%00", "rollouts/ro_99999999999999999999", f"runs/{run_id}/prompts/a%00b/heatmap"):
        assert client.get(path).status_code in (400, 404)
    for query in ("search=a%00b", "cause=%00", "component=%00", "row=%00", "after=%00", "sort=%00", "step=9999999999"):
        assert client.get(f"runs/{run_id}/rollouts?{query}").status_code in (200, 400, 404)
        assert client.get(f"runs/{run_id}/prompts?{query}").status_code in (200, 400, 404)
    for path in ("datasets/%00", "rewards/%00", "checkpoints/%00", "datasets?after=%00", "rewards?search=%00"):
        assert client.get(path).status_code in (200, 400, 404)
    body = json.dumps({"file_id": "\0", "name": "x"})
    assert client.post("datasets", content=body, headers={"content-type": "application/json"}).status_code in (400, 404)


def test_the_library_keeps_names_versions_and_files(client: TestClient) -> None:
    dataset = client.post("datasets", json={"sample": "maths"}).json()
    assert client.post("datasets", json={"sample": "maths"}).status_code == 409
    assert client.get(f"datasets/{dataset['id']}/rows").json()["has_more"] is True
    reward = client.post("rewards", json={"name": "one", "python": CODE}).json()
    client.post(f"rewards/{reward['id']}/versions", json={"python": CODE + " / 2"})
    assert client.get(f"rewards/{reward['id']}").json()["latest"] == 2
    assert client.delete(f"rewards/{reward['id']}").status_code == 200
    assert client.delete(f"datasets/{dataset['id']}", params={"file": True}).status_code == 200
