"""`strop runs import`, with and without a server."""

from __future__ import annotations

import json
import time
from pathlib import Path

import httpx

from run_folders import new_run, play
from server_process import serving, strop
from strop.store import queries
from strop.store.datafolder import DataFolder
from strop.store.db import open_database


def test_a_run_is_imported_without_a_server(tmp_path: Path) -> None:
    run = new_run(tmp_path / "elsewhere" / "run")
    play(run, 1, 3)
    data = tmp_path / "data"
    first = strop("runs", "import", run.path, "--data-dir", data)
    assert (first.returncode, first.stderr) == (0, "")
    again = json.loads(strop("runs", "import", run.path, "--data-dir", data, "--json").stdout)
    assert again == {"id": first.stdout.strip()}
    database = open_database(None, data)
    with database.read() as connection:
        (found,) = queries.runs(connection)
        assert (found["id"], found["path"]) == (again["id"], str(run.path))
        assert queries.count_rollouts(connection, found["id"]) == 48
    database.close()


def test_a_run_is_imported_by_the_server_where_one_runs_and_then_followed(tmp_path: Path) -> None:
    run = new_run(tmp_path / "elsewhere" / "run")
    play(run, 1, 2)
    with serving(tmp_path / "data") as server:
        name = strop("runs", "import", run.path, "--data-dir", tmp_path / "data").stdout.strip()
        assert server.http.get(f"/v1/strop/runs/{name}").json()["rollouts"] == 32
        with run.lock():
            play(run, 3, 3)
            wait_for_step(server.http, name, 3)


def wait_for_step(http: httpx.Client, name: str, step: int) -> None:
    """Until the list of runs, which looks at no folder itself, knows of a step."""
    deadline = time.monotonic() + 60
    while (found := http.get("/v1/strop/runs").json()["data"][0])["step"] != step or found["state"] != "running":
        assert found["id"] == name
        assert time.monotonic() < deadline, found
        time.sleep(0.1)


def test_a_database_that_was_deleted_is_filled_again_by_the_server(tmp_path: Path) -> None:
    folder = DataFolder.open(tmp_path / "data")
    play(new_run(folder.runs / "ftjob-1"), 1, 2)
    with serving(folder.path) as server:
        deadline = time.monotonic() + 60
        while not (found := server.http.get("/v1/strop/runs").json()["data"]):
            assert time.monotonic() < deadline
            time.sleep(0.1)
    assert found[0]["name"] == "case"


def test_what_cannot_be_imported_is_one_line(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere"):
        refused = strop("runs", "import", path, "--data-dir", tmp_path / "data")
        assert refused.returncode == 1
        assert refused.stderr.strip() == f"error {path} is not a run folder: it has no config.toml"


def test_a_folder_held_by_something_that_does_not_answer_is_said(tmp_path: Path) -> None:
    run, folder = new_run(tmp_path / "run"), DataFolder.open(tmp_path / "data")
    with folder.lock():
        refused = strop("runs", "import", run.path, "--data-dir", folder.path)
    assert refused.returncode == 1
    assert "in use by process" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
