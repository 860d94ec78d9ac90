"""Files of runs and checkpoints over HTTP: lists, downloads, archives, deletion."""

from __future__ import annotations

import io
import json
import urllib.parse
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import httpx
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

import stored_tasks
from models import save_tiny_model
from run_folders import new_run, play
from served import served
from strop.services.container import Services
from strop.store.checkpoints import CheckpointStore
from strop.store.rundir import RunDir, RunState
from strop.store.tables import deployments


def save(run: RunDir, step: int, reward: float | None = None, size: int = 1000, model: Path | None = None) -> None:
    """A checkpoint as the trainer makes it."""

    def write(folder: Path) -> None:
        (folder / "model.safetensors").write_bytes(bytes(size))
        tokenizer = (model / "tokenizer.json").read_bytes() if model else b"{}"
        (folder / "tokenizer.json").write_bytes(tokenizer)

    facts = {"format": "lora", "created_at": "2026-01-02T03:04:05+00:00", "validation_reward": reward}
    CheckpointStore(run.checkpoints, run.checkpoint_status_file, keep=10).save(step, facts, write)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """A finished run with four checkpoints, and a secret beside it."""
    top = tmp_path_factory.mktemp("runs")
    (top / "secret").write_text("secret")
    run = new_run(top / "filed", "filed")
    play(run, 1, 12)
    for step, reward in ((3, 0.1), (6, 0.9), (9, 0.2), (12, 0.3)):
        save(run, step, reward)
    (run.path / "link").symlink_to("../secret")
    (run.path / "page.html").write_text("<script>alert(1)</script>")
    run.log("a line")
    run.set_status(RunState.SUCCEEDED, step=12, total_steps=12)
    return run


@pytest.fixture(scope="module")
def run_id(client: TestClient, folder: RunDir) -> str:
    return str(client.post("runs/import", json={"path": str(folder.path)}).json()["id"])


def unpacked(content: bytes) -> dict[str, bytes]:
    with ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_files_of_a_run_are_listed_folder_by_folder(client: TestClient, run_id: str, folder: RunDir) -> None:
    listed = {entry["path"]: entry for entry in client.get(f"runs/{run_id}/files").json()["data"]}
    assert {
        "checkpoints",
        "rollouts",
        "config.toml",
        "metrics.jsonl",
        "training.log",
        "rollouts.jsonl",
    } <= listed.keys()
    assert not {".lock", "link"} & listed.keys()
    assert listed["rollouts"]["files"] == 12
    assert listed["rollouts.jsonl"]["bytes"] == listed["rollouts"]["bytes"]
    inner = client.get(f"runs/{run_id}/files", params={"folder": "checkpoints"}).json()["data"]
    assert [entry["name"] for entry in inner] == ["step-000003", "step-000006", "step-000009", "step-000012"]
    assert client.get(f"runs/{run_id}/files", params={"folder": "../"}).status_code == 404


def test_a_file_is_a_download_that_no_browser_runs(client: TestClient, run_id: str, folder: RunDir) -> None:
    answer = client.get(f"runs/{run_id}/files/page.html", headers={"range": "bytes=0-3"})
    assert (answer.status_code, answer.content) == (200, (folder.path / "page.html").read_bytes())
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"] == "attachment; filename*=UTF-8''page.html"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-length"] == str(len(answer.content))
    nested = client.get(f"runs/{run_id}/files/rollouts/000003.jsonl")
    assert nested.content == folder.rollout_file(3).read_bytes()


def test_all_rollouts_come_as_one_file(client: TestClient, run_id: str, folder: RunDir) -> None:
    lines = client.get(f"runs/{run_id}/files/rollouts.jsonl").text.splitlines()
    assert list(map(json.loads, lines)) == list(folder.read_rollouts())


@pytest.mark.parametrize(
    "path",
    [
        "../secret",
        "%2e%2e/secret",
        "%2e%2e%2fsecret",
        "..%2fsecret",
        "rollouts/../../secret",
        "rollouts%2f..%2f..%2fsecret",
        "/etc/passwd",
        "%2fetc%2fpasswd",
        "link",
        ".lock",
        "config.toml%00",
        "..%5csecret",
        "rollouts",
        "",
    ],
)
def test_no_path_leads_out_of_a_run(server: Services, run_id: str, path: str) -> None:
    # Over a real connection, with the path as it is: a client would tidy it up.
    with served(server) as url, httpx.Client() as client:
        address = httpx.URL(f"{url}/strop/runs/{run_id}/files/")
        answer = client.get(address.copy_with(raw_path=address.raw_path + path.encode()))
    assert answer.status_code in (307, 400, 404)
    assert "secret" not in answer.text.replace(path, "").replace(urllib.parse.unquote(path), "") or answer.is_error


@settings(max_examples=60, deadline=None)
@given(path=st.text(st.sampled_from("./\\%2e\0link") | st.characters(codec="utf-8"), max_size=30))
@example("a/" * 2000)
@example("x" * 300)
def test_no_odd_path_gives_a_secret_or_an_error_of_ours(client: TestClient, run_id: str, path: str) -> None:
    answer = client.get(f"runs/{run_id}/files/{urllib.parse.quote(path)}")
    assert answer.status_code in (200, 307, 400, 404, 414)
    assert answer.content != b"secret"


def test_a_run_comes_as_an_archive_of_all_its_files(client: TestClient, run_id: str, folder: RunDir) -> None:
    answer = client.get(f"runs/{run_id}/archive")
    assert answer.headers["content-type"] == "application/zip"
    files = unpacked(answer.content)
    assert files["config.toml"] == folder.config_file.read_bytes()
    assert files["checkpoints/step-000006/model.safetensors"] == bytes(1000)
    assert "link" not in files
    part = unpacked(client.get(f"runs/{run_id}/archive", params={"folder": "rollouts"}).content)
    assert sorted(part) == [f"{step:06d}.jsonl" for step in range(1, 13)]
    assert client.get(f"runs/{run_id}/archive", params={"folder": "nothing"}).status_code == 404


# Checkpoints.


def test_checkpoints_are_listed_the_newest_first_with_their_files(client: TestClient, run_id: str) -> None:
    listed = client.get(f"runs/{run_id}/checkpoints").json()["data"]
    assert [(entry["step"], entry["latest"], entry["best"]) for entry in listed] == [
        (12, True, False),
        (9, False, False),
        (6, False, True),
        (3, False, False),
    ]
    whole = client.get(f"checkpoints/{listed[0]['id']}").json()
    assert {file["name"]: file["bytes"] for file in whole["files"]} == {"model.safetensors": 1000, "tokenizer.json": 2}
    assert whole["facts"]["format"] == "lora"
    assert listed[0] in client.get("checkpoints").json()["data"]


def test_a_checkpoint_is_downloaded_whole_or_by_file(client: TestClient, run_id: str, folder: RunDir) -> None:
    entry = client.get(f"runs/{run_id}/checkpoints").json()["data"][0]
    files = unpacked(client.get(f"checkpoints/{entry['id']}/archive").content)
    place = folder.path / entry["path"]
    assert files == {file.name: file.read_bytes() for file in place.iterdir()}
    assert client.get(f"checkpoints/{entry['id']}/files/manifest.json").json()["step"] == 12
    assert client.get(f"checkpoints/{entry['id']}/files/..%2fmanifest.json").status_code == 404


def test_checkpoints_that_are_needed_stay(client: TestClient, run_id: str, server: Services) -> None:
    latest, ninth, best, _ = client.get(f"runs/{run_id}/checkpoints").json()["data"]
    assert client.delete(f"checkpoints/{latest['id']}").status_code == 409
    assert client.delete(f"checkpoints/{best['id']}").status_code == 409
    values: dict[str, Any] = {"id": "dep_1", "created_at": 0.0, "name": "d", "path": "x", "wanted": "loaded"}
    with server.database.write() as connection:
        connection.execute(deployments.insert().values(**values, source=ninth["id"]))
    assert "deployed as d" in client.delete(f"checkpoints/{ninth['id']}").json()["error"]["message"]
    with server.database.write() as connection:
        connection.execute(deployments.delete())
    stored_tasks.add_job(server.database, "ftjob-8", forked_from=ninth["id"])
    assert "ftjob-8" in client.delete(f"checkpoints/{ninth['id']}").json()["error"]["message"]
    stored_tasks.forget_tasks(server.database)
    waiting = _evaluate(client, ninth["id"])
    assert waiting in client.delete(f"checkpoints/{ninth['id']}").json()["error"]["message"]
    client.post(f"evaluations/{waiting}/cancel")
    client.delete(f"evaluations/{waiting}")


def _evaluate(client: TestClient, model: str) -> str:
    """The id of an evaluation that waits."""
    row = json.dumps({"messages": [{"role": "user", "content": "1 + 1?"}]})
    form: dict[str, Any] = {"files": {"file": ("rows.jsonl", row)}, "data": {"purpose": "fine-tune"}}
    file_id = client.post("http://localhost/v1/files", **form).json()["id"]
    reward = {"name": "exact", "python": "def grade(sample, item):\n    return 1.0\n"}
    answer = client.post("evaluations", json={"model": model, "file_id": file_id, "rewards": [reward]})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["id"])


def test_a_checkpoint_of_a_run_in_training_stays(client: TestClient, run_id: str, folder: RunDir) -> None:
    ninth = client.get(f"runs/{run_id}/checkpoints").json()["data"][1]
    with folder.lock():
        answer = client.delete(f"checkpoints/{ninth['id']}")
    assert (answer.status_code, "is being trained" in answer.text) == (409, True)


def test_other_checkpoints_are_deleted_from_disk(client: TestClient, tmp_path: Path) -> None:
    run = new_run(tmp_path / "kept", "kept")
    for step in (1, 2):
        save(run, step)
    run.set_status(RunState.SUCCEEDED, step=2)
    run_id = client.post("runs/import", json={"path": str(run.path)}).json()["id"]
    first = client.get(f"runs/{run_id}/checkpoints").json()["data"][1]
    assert client.delete(f"checkpoints/{first['id']}").json()["deleted"] is True
    assert [path.name for path in run.checkpoints.iterdir()] == ["step-000002"]
    assert [entry["step"] for entry in client.get(f"runs/{run_id}/checkpoints").json()["data"]] == [2]
    assert run.checkpoint_status()["latest"] == 2
    assert client.get(f"checkpoints/{first['id']}").status_code == 404
    assert client.delete(f"checkpoints/{first['id']}").status_code == 404


def test_a_checkpoint_whose_path_leads_out_gives_nothing(client: TestClient, tmp_path: Path) -> None:
    run = new_run(tmp_path / "evil", "evil")
    save(run, 1)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "manifest.json").write_text('{"step": 1, "files": {}}')
    status = run.checkpoint_status()
    status["checkpoints"][0]["path"] = "../outside"
    run.checkpoint_status_file.write_text(json.dumps(status))
    run_id = client.post("runs/import", json={"path": str(run.path)}).json()["id"]
    entry = client.get(f"runs/{run_id}/checkpoints").json()["data"][0]
    for path in ("", "/archive", "/files/manifest.json"):
        assert client.get(f"checkpoints/{entry['id']}{path}").status_code == 404


def test_a_checkpoint_that_goes_during_its_download_ends_neither_side(server: Services, tmp_path: Path) -> None:
    run = new_run(tmp_path / "big", "big")
    for step in (1, 2):
        save(run, step, size=48 * 2**20)
    run.set_status(RunState.SUCCEEDED, step=2)
    run_id = server.ingester.import_run(run.path)
    with served(server) as url, httpx.Client(base_url=f"{url}/strop", timeout=60) as client:
        first = client.get(f"runs/{run_id}/checkpoints").json()["data"][1]
        with client.stream("GET", f"checkpoints/{first['id']}/files/model.safetensors") as answer:
            parts = answer.iter_bytes()
            size = len(next(parts))
            assert client.delete(f"checkpoints/{first['id']}").status_code == 200
            size += sum(map(len, parts))
        assert size == 48 * 2**20
        assert client.get(f"checkpoints/{first['id']}/archive").status_code == 404


def test_tokens_have_texts_once_a_tokenizer_is_at_hand(client: TestClient, tmp_path: Path) -> None:
    run = new_run(tmp_path / "tokens", "tokens")
    play(run, 1, 1)
    save(run, 1, model=save_tiny_model("llama", tmp_path / "model"))
    run_id = client.post("runs/import", json={"path": str(run.path)}).json()["id"]
    rollout = client.get(f"runs/{run_id}/rollouts").json()["data"][0]
    (segment,) = client.get(f"rollouts/{rollout['id']}").json()["segments"]
    assert [token["id"] for token in segment["tokens"]] == segment["token_ids"]
    assert all(token["sampled"] and token["logprob"] == -0.123456 for token in segment["tokens"])
    assert "".join(token["text"] for token in segment["tokens"])
