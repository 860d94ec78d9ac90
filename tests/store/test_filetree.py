"""Files of a folder by name: never out of it."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from strop.errors import NotFound
from strop.store.filetree import FileTree, chunks


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what may lie in one, and a secret beside it."""
    top = tmp_path_factory.mktemp("top")
    (top / "secret").write_text("secret")
    run = top / "run"
    (run / "rollouts").mkdir(parents=True)
    (run / "checkpoints" / "step-000002").mkdir(parents=True)
    (run / "config.toml").write_text("name = 1")
    (run / ".lock").write_text("123")
    (run / "rollouts" / "000001.jsonl").write_text("{}\n")
    (run / "rollouts" / "000002.jsonl").write_text("{}\n{}\n")
    (run / "checkpoints" / "step-000002" / "model.safetensors").write_bytes(b"x" * 1000)
    (run / "odd <name> & “quotes”.txt").write_text("odd")
    (run / "link").symlink_to("config.toml")
    (run / "away").symlink_to("..")
    os.mkfifo(run / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(run / "socket"))
    with open(os.fsencode(run) + b"/\xff.txt", "wb"):
        pass
    return run


def test_a_listing_names_files_and_sums_up_folders(folder: Path) -> None:
    listed = [(entry.path, entry.kind, entry.bytes, entry.files) for entry in FileTree(folder).entries()]
    assert listed == [
        ("checkpoints", "folder", 1000, 1),
        ("rollouts", "folder", 9, 2),
        ("config.toml", "file", 8, 1),
        ("odd <name> & “quotes”.txt", "file", 3, 1),
    ]


def test_a_folder_inside_is_listed_by_its_path(folder: Path) -> None:
    paths = [entry.path for entry in FileTree(folder).entries("checkpoints/step-000002")]
    assert paths == ["checkpoints/step-000002/model.safetensors"]
    with pytest.raises(NotFound):
        FileTree(folder).entries("config.toml")


def test_all_files_are_found_at_any_depth(folder: Path) -> None:
    assert [entry.path for entry in FileTree(folder).files()] == [
        "checkpoints/step-000002/model.safetensors",
        "config.toml",
        "odd <name> & “quotes”.txt",
        "rollouts/000001.jsonl",
        "rollouts/000002.jsonl",
    ]
    assert len(FileTree(folder).files("rollouts")) == 2


def test_a_file_is_read_in_chunks_to_its_end(folder: Path) -> None:
    file = FileTree(folder).open("checkpoints/step-000002/model.safetensors")
    assert b"".join(chunks(file)) == b"x" * 1000
    assert file.closed
    assert b"".join(chunks(FileTree(folder).open("config.toml"), 4)) == b"name"


@pytest.mark.parametrize(
    "path",
    [
        "",
        "..",
        "../secret",
        "rollouts/../../secret",
        "/etc/passwd",
        "./config.toml",
        "rollouts//000001.jsonl",
        "rollouts/",
        "config.toml/",
        "config.toml/x",
        "rollouts",
        ".lock",
        "link",
        "away/secret",
        "away/run/config.toml",
        "pipe",
        "socket",
        "missing",
        "a\0b",
        "..\\secret",
        "%2e%2e/secret",
        "\udcff.txt",
        "x" * 300,
        "CON",
    ],
)
def test_what_is_no_file_in_the_folder_is_not_found(folder: Path, path: str) -> None:
    with pytest.raises(NotFound):
        FileTree(folder).open(path)


@given(st.text(st.sampled_from("./\\\0a%2e~") | st.characters(), max_size=40))
@example("a/" * 5000)
def test_no_name_leads_out(folder: Path, path: str) -> None:
    for name in (path, f"rollouts/{path}", f"away/{path}"):
        try:
            with FileTree(folder).open(name) as file:
                assert file.read() != b"secret"
        except NotFound:
            pass


def test_a_deleted_file_is_read_to_its_end(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(b"z" * 600_000)
    content = chunks(FileTree(tmp_path).open("big"))
    first = next(content)
    (tmp_path / "big").unlink()
    assert len(first) + sum(map(len, content)) == 600_000


def test_a_folder_that_is_gone_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        FileTree(tmp_path / "gone").entries()


def test_the_folder_itself_may_be_reached_through_a_link(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "runs").symlink_to(folder)
    assert b"".join(chunks(FileTree(tmp_path / "runs").open("config.toml"))) == b"name = 1"
