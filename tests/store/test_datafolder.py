"""The data folder: its layout, its paths, its lock."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from strop.errors import ServerError
from strop.store.datafolder import DataFolder, default_path

HOLDER = """
import sys, time
from pathlib import Path
from strop.store.datafolder import DataFolder
folder = DataFolder.open(Path(sys.argv[1]))
with folder.lock():
    if sys.argv[2:]:
        folder.announce(sys.argv[2])
    print("held", flush=True)
    time.sleep(60)
"""


@contextmanager
def held(folder: DataFolder, *url: str) -> Iterator[subprocess.Popen[str]]:
    """The folder in the hands of another process, with or without an address."""
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, folder.path, *url], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    try:
        yield holder
    finally:
        holder.kill()
        holder.communicate()


@pytest.fixture
def folder(tmp_path: Path) -> DataFolder:
    return DataFolder.open(tmp_path / "data")


def test_a_new_folder_is_for_its_owner_only(folder: DataFolder) -> None:
    assert folder.path.stat().st_mode & 0o777 == 0o700
    assert sorted(entry.name for entry in folder.path.iterdir()) == ["evaluations", "files", "rewards", "runs", "tasks"]


def test_opening_again_changes_nothing(folder: DataFolder) -> None:
    (folder.files / "file-1").write_text("kept")
    assert (DataFolder.open(folder.path).files / "file-1").read_text() == "kept"


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(ServerError, match=r"taken: cannot create a data folder here: File exists"):
        DataFolder.open(tmp_path / "taken")


def test_the_usual_place_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("STROP_HOME", str(tmp_path / "home"))
    assert default_path() == tmp_path / "home"
    monkeypatch.delenv("STROP_HOME")
    assert default_path() == Path.home() / ".local" / "share" / "strop"


def test_paths_inside_are_kept_relative_and_others_absolute(folder: DataFolder, tmp_path: Path) -> None:
    inside, outside = folder.runs / "ftjob-1", tmp_path / "elsewhere" / "run"
    assert folder.stored(inside) == "runs/ftjob-1"
    assert folder.stored(outside) == str(outside)
    assert folder.stored(folder.runs / ".." / ".." / "elsewhere") == str(tmp_path / "elsewhere")
    assert [folder.found(folder.stored(path)) for path in (inside, outside)] == [inside, outside]


def test_a_second_server_is_refused_with_the_id_of_the_first(folder: DataFolder) -> None:
    with held(folder) as first, pytest.raises(ServerError, match=f"in use by process {first.pid};"), folder.lock():
        pass


def test_the_folder_of_a_killed_server_is_free(folder: DataFolder) -> None:
    with held(folder, "http://127.0.0.1:1") as server:
        server.kill()
        server.wait()
        assert folder.server_url() is None
        with folder.lock():
            pass


def test_the_address_is_known_while_the_server_runs(folder: DataFolder) -> None:
    assert folder.server_url() is None
    with held(folder, "http://127.0.0.1:4321"):
        assert folder.server_url() == "http://127.0.0.1:4321"
    assert folder.server_url() is None


def test_the_address_that_an_earlier_server_left_is_not_believed(folder: DataFolder) -> None:
    folder.announce("http://127.0.0.1:1")
    with held(folder) as starting, pytest.raises(ServerError, match=f"in use by process {starting.pid};"):
        folder.server_url()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_is_refused(folder: DataFolder) -> None:
    folder.path.chmod(0o500)
    with pytest.raises(ServerError, match="read-only"):
        DataFolder.open(folder.path)
