"""The server as a process: how it starts, what it refuses, how it ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from databases import PostgresServer
from run_folders import new_run, play
from server_process import serving, strop
from strop.app import Options, Server
from strop.errors import DatabaseError, ServerError, StropError
from strop.store.datafolder import DataFolder

LOOK = """
import os, signal, sys
from strop.app import Options, Server
from pathlib import Path

def ready(url):
    print(sorted({name.partition(".")[0] for name in sys.modules}))
    os.kill(os.getpid(), signal.SIGTERM)

Server(Options(port=0, data_dir=Path(sys.argv[1])), ready).run()
print("ended well")
"""
AS_ANOTHER_USER = """
import os, sys
from strop.app import Options, Server
from strop.errors import StropError
from pathlib import Path

if os.geteuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
try:
    Server(Options(port=0, data_dir=Path(sys.argv[1])), print).run()
except StropError as error:
    sys.exit(error.message)
"""


def python(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_it_answers_once_it_says_so_and_ends_well(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as server:
        assert server.http.get("/health").json()["status"] == "ok"
        assert json.loads((tmp_path / "data" / "server.json").read_text()) == {
            "pid": server.process.pid,
            "url": server.url,
        }
        assert server.stop().count("Traceback") == 0
    assert "stopped" in (tmp_path / "data" / "server.log").read_text()
    with pytest.raises(httpx.ConnectError):
        httpx.get(server.url)


def test_it_never_loads_torch(tmp_path: Path) -> None:
    done = python(LOOK, tmp_path)
    assert done.returncode == 0, done.stderr
    modules, said = done.stdout.splitlines()
    assert said == "ended well"
    assert "fastapi" in modules
    for heavy in ("torch", "transformers", "peft", "safetensors", "numpy"):
        assert f"'{heavy}'" not in modules


def test_a_data_folder_has_one_server(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        second = strop("serve", "--data-dir", tmp_path, "--port", 0)
        assert second.returncode == 1
        assert second.stderr.splitlines() == [
            f"error {tmp_path} is in use by process {server.process.pid}; "
            "stop that process first, or choose another --data-dir"
        ]
        assert server.http.get("/health").status_code == 200


def test_a_killed_server_leaves_its_folder_free(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        server.http.post("/v1/strop/keys", json={"name": "kept"}).raise_for_status()
        server.kill()
    with serving(tmp_path) as server:
        assert [key["name"] for key in server.http.get("/v1/strop/keys").json()["data"]] == ["kept"]


def test_a_port_in_use_is_one_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = strop("serve", "--data-dir", tmp_path, "--port", port)
    assert done.returncode == 1
    line = f"error cannot serve at 127.0.0.1:{port}: Address already in use; choose another with --port"
    assert done.stderr.splitlines() == [line]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"port": 70000}, "--port 70000: no such port; ports go from 1 to 65535"),
        (
            {"host": "no.such.host.invalid"},
            "--host no.such.host.invalid is reachable from other machines, but there is no API key",
        ),
        ({"host": "127.0.0.1:80"}, "--host 127.0.0.1:80 is reachable from other machines, but there is no API key"),
        ({"host": "0.0.0.0"}, "create one first: strop keys create NAME"),
        ({"database_url": "sqlite:////nowhere/strop.db"}, "unable to open database file"),
        ({"database_url": "nonsense"}, "invalid database URL; expected postgresql://"),
        ({"database_url": "mysql://user:rosebud@host/x"}, "only SQLite and PostgreSQL are supported"),
        ({"database_url": "postgresql://strop:rosebud@/x?host=/nowhere"}, "postgresql://strop:***@/x"),
    ],
)
def test_what_cannot_begin_is_refused_in_one_line(tmp_path: Path, options: dict[str, Any], said: str) -> None:
    with pytest.raises(StropError) as caught:
        Server(Options(**{"data_dir": tmp_path, "port": 0, **options}), print).run()
    assert said in caught.value.message
    assert "rosebud" not in caught.value.message
    assert len(caught.value.message.splitlines()) == 1
    assert DataFolder.open(tmp_path).server_url() is None


def test_a_database_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "strop.db").write_bytes(b"no database, but long enough to be looked at" * 100)
    with pytest.raises(DatabaseError, match="file is not a database"):
        Server(Options(data_dir=tmp_path, port=0), print).run()


def test_a_file_where_the_folder_should_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    with pytest.raises(ServerError, match="cannot create a data folder here: File exists"):
        Server(Options(data_dir=tmp_path / "data", port=0), print).run()


def test_a_folder_that_is_read_only_is_one_line(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir(mode=0o500)
    done = python(AS_ANOTHER_USER, folder)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(f"{folder}: ")
    assert "Traceback" not in done.stderr


def test_what_the_server_writes_is_for_its_user_only(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with serving(tmp_path / "data") as server:
            server.http.put("/v1/strop/secrets/TOKEN", json={"value": "rosebud"}).raise_for_status()
            server.http.post("/v1/files", files={"file": b"x"}, data={"purpose": "batch"}).raise_for_status()
            server.stop()
    finally:
        os.umask(before)
    for path in (tmp_path / "data", *(tmp_path / "data").rglob("*")):
        assert stat.S_IMODE(path.lstat().st_mode) & 0o077 == 0, path


def test_secrets_appear_nowhere(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        client = server.http
        client.put("/v1/strop/secrets/TOKEN", json={"value": "rosebud-1"}).raise_for_status()
        key = client.post("/v1/strop/keys", json={"name": "laptop"}).json()["key"]
        answers = [
            client.put("/v1/strop/secrets/TOKEN", json={"value": "rosebud-2\0"}).text,
            client.put("/v1/strop/secrets/no-name", json={"value": "rosebud-3"}).text,
            client.put("/v1/strop/secrets/TOKEN", content=b'{"value": rosebud-4').text,
            client.get("/v1/nothing", params={"api_key": "rosebud-5"}, headers={"authorization": f"Bearer {key}"}).text,
            client.get("/v1/strop/secrets").text,
            client.get("/v1/strop/keys").text,
            client.get("/metrics").text,
            client.get("/openapi.json").text,
        ]
        shown = (Path("/proc") / str(server.process.pid) / "cmdline").read_bytes()
        said = server.stop()
    stored = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"TOKEN" in stored
    for text in (*(answer.encode() for answer in answers), shown, said.encode(), stored):
        assert b"rosebud" not in text
        assert key.encode() not in text


def test_a_key_lets_other_machines_in(tmp_path: Path) -> None:
    made = strop("keys", "create", "laptop", "--data-dir", tmp_path, "--json")
    key = json.loads(made.stdout)["key"]
    with serving(tmp_path, "--host", "0.0.0.0") as server:
        assert server.http.get("/v1/strop/keys").status_code == 401
        assert (
            server.http.get("/v1/strop/keys", headers={"authorization": f"Bearer {key}"}).json()["data"][0]["name"]
            == "laptop"
        )
        refused = strop("keys", "list", "--data-dir", tmp_path)
        assert refused.returncode == 1
        assert "set the API key in $STROP_API_KEY" in refused.stderr
        listed = strop("keys", "list", "--data-dir", tmp_path, env={"STROP_API_KEY": key})
        assert "laptop" in listed.stdout
        assert key not in listed.stdout + listed.stderr + refused.stderr


def test_an_answer_under_way_ends_before_the_server_does(tmp_path: Path) -> None:
    content = b"x" * 32 * 1024 * 1024
    with serving(tmp_path) as server:
        client = server.http
        file = client.post("/v1/files", files={"file": content}, data={"purpose": "batch"}).json()
        with client.stream("GET", f"/v1/files/{file['id']}/content") as answer:
            pieces = answer.iter_bytes(65536)
            begin = next(pieces)
            server.process.send_signal(signal.SIGTERM)
            assert begin + b"".join(pieces) == content
        assert server.process.wait(60) == 0


def test_a_stream_that_never_ends_does_not_keep_it_from_ending(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    play(run, 1, 2)
    with serving(tmp_path / "data") as server:
        answer = server.http.post("/v1/strop/runs/import", json={"path": str(run.path)})
        path = f"/v1/strop/runs/{answer.json()['id']}/stream"
        with server.http.stream("GET", path, params={"after": -1}) as stream:
            pieces = stream.iter_text()
            assert "event: status" in next(pieces)
            server.process.send_signal(signal.SIGTERM)
            with suppress(httpx.RemoteProtocolError):  # cut off, as it has no end
                for _ in pieces:
                    pass
        assert server.process.wait(60) == 0


def test_it_keeps_its_data_in_postgresql(tmp_path: Path, postgres: PostgresServer) -> None:
    url = postgres.create(migrated=False)
    for _ in range(2):
        with serving(tmp_path, env={"STROP_DATABASE_URL": url}) as server:
            server.http.post("/v1/strop/keys", json={"name": "laptop"}).raise_for_status()
            names = [key["name"] for key in server.http.get("/v1/strop/keys").json()["data"]]
            server.stop()
    assert names == ["laptop", "laptop"]
    assert not (tmp_path / "strop.db").exists()
    postgres.drop(url)
