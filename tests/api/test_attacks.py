"""What a client may try against the machine that the server runs on."""

from __future__ import annotations

import io
import os
import pickle
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from run_folders import new_run, play
from served import services
from strop.api.app import create_app
from strop.services.container import Services
from strop.store.checkpoints import CheckpointStore
from strop.store.rundir import RunState


class Bomb:
    """Makes a file when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.mark),)


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    with services(tmp_path_factory.mktemp("data")) as given:
        yield given


@pytest.fixture(scope="module")
def client(given: Services) -> TestClient:
    return TestClient(create_app(given), base_url="http://localhost:8100/v1/")


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    """What must not exist in the end."""
    return tmp_path / "exploded"


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.safetensors", "adapter_model.bin"])
def test_weights_that_are_a_pickle_stay_unread(client: TestClient, tmp_path: Path, mark: Path, name: str) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text('{"model_type": "llama", "architectures": ["LlamaForCausalLM"]}')
    (model / name).write_bytes(pickle.dumps(Bomb(mark)))
    if name != "model.safetensors":  # which only the model process opens, as safetensors
        assert client.post("strop/deployments", json={"source": str(model)}).status_code == 400
    client.get("models")
    assert not mark.exists()


def test_pickles_in_a_run_folder_are_files_like_any_other(client: TestClient, tmp_path: Path, mark: Path) -> None:
    bomb = pickle.dumps(Bomb(mark))
    run = new_run(tmp_path / "run")
    play(run, 1, 2)
    run.order_file(2).write_bytes(bomb)
    checkpoints = CheckpointStore(run.checkpoints, run.checkpoint_status_file, keep=3)
    checkpoints.save(2, {}, lambda folder: _write(folder / "training_state.pt", bomb))
    run.set_status(RunState.SUCCEEDED, step=2)
    run_id = client.post("strop/runs/import", json={"path": str(run.path)}).json()["id"]
    assert client.get(f"strop/runs/{run_id}/checkpoints").json()["data"][0]["step"] == 2
    archive = zipfile.ZipFile(io.BytesIO(client.get(f"strop/runs/{run_id}/archive").content))
    assert archive.read("checkpoints/step-000002/training_state.pt") == bomb
    assert not mark.exists()


def test_no_name_in_an_archive_leads_out_of_it(client: TestClient, tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    play(run, 1, 1)
    secret = tmp_path / "secret"
    secret.write_text("rosebud")
    for name in ("..\\..\\evil", "C:evil", "...", " ", "a\nb"):
        (run.path / name).write_text("x")
    (run.path / "link").symlink_to(secret)
    (run.path / "outside").symlink_to(tmp_path)
    run_id = client.post("strop/runs/import", json={"path": str(run.path)}).json()["id"]
    content = client.get(f"strop/runs/{run_id}/archive").content
    target = tmp_path / "unpacked" / "here"
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for name in archive.namelist():
            assert not name.startswith(("/", "\\"))
            assert ".." not in name.replace("\\", "/").split("/")
        archive.extractall(target)
    assert [path for path in target.parent.rglob("*") if not path.is_relative_to(target)] == []
    assert b"rosebud" not in b"".join(path.read_bytes() for path in target.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest/meta-data",
        "http://[::ffff:169.254.169.254]/v1",
        "http://[fe80::1]/v1",
        "http://100.100.100.200/v1",
        "file:///etc/passwd",
        "gopher://localhost:6379/_",
        "http://user:rosebud@models.example/v1",
        "//models.example/v1",
        "http:///v1",
    ],
)
def test_no_url_leads_to_what_gives_credentials_away(client: TestClient, given: Services, url: str) -> None:
    rows = given.files.add("rows.jsonl", "fine-tune", [b'{"prompt": "one"}\n'])
    reward = {"name": "r", "python": "def grade(sample, item):\n    return 1.0\n"}
    body = {"model": {"model": "m", "base_url": url}, "file_id": rows.id, "rewards": [reward]}
    answer = client.post("strop/evaluations", json=body)
    assert answer.status_code == 400, answer.text
    assert "rosebud" not in answer.text
    judge = {"type": "score_model", "name": "j", "model": "m", "input": [{"role": "user", "content": "x"}]}
    answer = client.post(
        "fine_tuning/alpha/graders/run", json={"grader": {**judge, "base_url": url}, "model_sample": "x", "item": {}}
    )
    assert answer.status_code == 400, answer.text
    assert "rosebud" not in answer.text


@pytest.mark.parametrize("path", ["/etc", "/proc/self", "/root/.ssh", "~", ".", "../..", "/dev/zero", "/nowhere"])
def test_only_a_run_folder_is_imported(client: TestClient, path: str) -> None:
    answer = client.post("strop/runs/import", json={"path": path})
    assert answer.status_code == 400
    assert client.get("strop/runs", params={"search": "passwd"}).json()["data"] == []


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)
