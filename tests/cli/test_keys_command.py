"""`strop keys`, with and without a server."""

from __future__ import annotations

import json
from pathlib import Path

from server_process import serving, strop


def test_keys_are_made_listed_and_revoked_without_a_server(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    made = strop("keys", "create", "laptop", "--data-dir", tmp_path)
    assert (tmp_path / "strop.db").stat().st_mode & 0o777 == 0o600
    key = made.stdout.strip()
    assert key.startswith("sk-strop-")
    assert key not in made.stderr
    found = json.loads(strop("keys", "list", "--data-dir", tmp_path, "--json").stdout)
    assert [entry["name"] for entry in found] == ["laptop"]
    assert key.startswith(found[0]["prefix"])
    assert strop("keys", "revoke", found[0]["id"], "--data-dir", tmp_path).returncode == 0
    table = strop("keys", "list", "--data-dir", tmp_path).stdout
    assert found[0]["id"] in table
    assert key not in table


def test_keys_are_made_by_the_server_where_one_runs(tmp_path: Path) -> None:
    proxy = {"http_proxy": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9"}
    with serving(tmp_path) as server:
        made = json.loads(strop("keys", "create", "laptop", "--data-dir", tmp_path, "--json", env=proxy).stdout)
        assert server.http.get("/v1/strop/keys").json()["data"][0]["id"] == made["id"]
        assert "laptop" in strop("keys", "list", "--data-dir", tmp_path).stdout
        assert strop("keys", "revoke", made["id"], "--data-dir", tmp_path).returncode == 0
        assert server.http.get("/v1/strop/keys").json()["data"][0]["revoked_at"] is not None
        refused = strop("keys", "revoke", "key_0", "--data-dir", tmp_path)
        assert (refused.returncode, refused.stderr.strip()) == (1, "error no key 'key_0'")


def test_without_keys_it_says_how_to_make_one(tmp_path: Path) -> None:
    listed = strop("keys", "list", "--data-dir", tmp_path)
    assert (listed.returncode, listed.stdout) == (0, "")
    assert "strop keys create NAME" in listed.stderr


def test_a_bad_name_is_one_line(tmp_path: Path) -> None:
    refused = strop("keys", "create", "", "--data-dir", tmp_path)
    assert (refused.returncode, len(refused.stderr.splitlines())) == (1, 1)
    assert "a key needs a name" in refused.stderr
