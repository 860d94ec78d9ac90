"""The description of the API against its behaviour: requests made up from it, answers compared with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import schemathesis
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import Case
from schemathesis.checks import CheckFunction
from schemathesis.specs.openapi import checks

from fake_deployments import FakeDeployments
from run_folders import new_run, play
from served import services
from strop.api.app import create_app
from strop.services.container import Services, Settings
from strop.store.checkpoints import CheckpointStore
from strop.store.rundir import RunState

HOST = {"host": "localhost:8100"}
CHECKS: list[CheckFunction] = [
    schemathesis.checks.not_a_server_error,
    checks.response_schema_conformance,
    checks.content_type_conformance,
    checks.status_code_conformance,
]
ENDLESS = ("/stream", "/logs/stream")
ROWS = b'{"prompt": "one", "answer": "1"}\n{"prompt": "two", "answer": "2"}\n'
GRADER = {
    "type": "string_check",
    "name": "exact",
    "input": "{{sample.output_text}}",
    "reference": "1",
    "operation": "eq",
}


@contextmanager
def a_server_in_use(folder: Path) -> Iterator[tuple[Services, dict[str, Any]]]:
    """Services with one of everything, and the ids of those by the names of path parameters."""
    with services(folder / "data", deployments=FakeDeployments()) as server:
        run = new_run(folder / "run", "played")
        play(run, 1, 5)
        checkpoints = CheckpointStore(run.checkpoints, run.checkpoint_status_file, keep=3)
        checkpoints.save(5, {}, _adapter)
        run.set_status(RunState.SUCCEEDED, step=5, total_steps=5)
        client = TestClient(create_app(server), base_url="http://localhost:8100/v1/")
        yield server, dict(_fill(client, run.path))


def _fill(client: TestClient, run: Path) -> Iterator[tuple[str, Any]]:
    def post(path: str, **body: Any) -> Any:
        answer = client.post(path, **body)
        assert answer.status_code in (200, 201), answer.text
        return answer.json()

    file = post("files", files={"file": ("rows.jsonl", ROWS)}, data={"purpose": "fine-tune"})
    yield "file_id", file["id"]
    method = {"type": "reinforcement", "reinforcement": {"grader": GRADER}}
    job = {"model": "smollm2-135m", "training_file": file["id"], "method": method}
    yield "job_id", post("fine_tuning/jobs", json=job)["id"]
    run_id = post("strop/runs/import", json={"path": str(run)})["id"]
    yield "run_id", run_id
    yield "row", client.get(f"strop/runs/{run_id}/prompts").json()["data"][0]["id"]
    yield "rollout_id", client.get(f"strop/runs/{run_id}/rollouts").json()["data"][0]["id"]
    yield "dataset_id", post("strop/datasets", json={"name": "numbers", "file_id": file["id"]})["id"]
    reward = post("strop/rewards", json={"name": "exact", "python": "def grade(sample, item):\n    return 1.0\n"})
    yield "reward_id", reward["id"]
    yield "version", 1
    yield "key", post("strop/deployments", json={"source": "smollm2-135m"})["id"]
    yield "path", "config.toml"
    checkpoint = client.get(f"strop/runs/{run_id}/checkpoints").json()["data"][0]
    yield "checkpoint_id", checkpoint["id"]
    yield "name", "adapter_config.json"
    outside = {"model": "m", "base_url": "https://models.example/v1"}
    scored = {"name": "exact", "python": "def grade(sample, item):\n    return 1.0\n"}
    evaluation = {"model": outside, "file_id": file["id"], "rewards": [scored]}
    yield "evaluation_id", post("strop/evaluations", json=evaluation)["id"]


def _adapter(folder: Path) -> None:
    (folder / "adapter_config.json").write_text("{}")


@pytest.fixture(scope="module")
def in_use(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Mapping[str, Any]]]:
    """The description, served by an app that is in use, and the ids of what is there."""
    with a_server_in_use(tmp_path_factory.mktemp("server")) as (server, known):
        yield schemathesis.openapi.from_asgi("/openapi.json", create_app(server), headers=HOST), known


def operations() -> Iterator[tuple[str, str]]:
    """Method and path of each documented operation."""
    services = SimpleNamespace(settings=Settings(), database=None, keys=None)  # nothing asks them for anything
    for path, found in create_app(services).openapi()["paths"].items():  # type: ignore[arg-type]
        if not path.endswith(ENDLESS):
            yield from ((method.upper(), path) for method in found)


@pytest.mark.parametrize(("method", "path"), list(operations()))
def test_answers_are_what_the_description_says(in_use: tuple[Any, Mapping[str, Any]], method: str, path: str) -> None:
    schema, known = in_use

    @given(case=schema[path][method].as_strategy())
    @settings(
        max_examples=10,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def check(case: Case[Any]) -> None:
        if method == "GET":  # made-up ids find nothing: ask for what there is
            given_ids = case.path_parameters or {}
            case.path_parameters = {name: known.get(name, value) for name, value in given_ids.items()}
        case.call_and_validate(headers=HOST, checks=CHECKS)

    check()
