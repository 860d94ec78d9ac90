"""Zip archives as they are sent."""

from __future__ import annotations

import io
import os
import tracemalloc
from pathlib import Path
from zipfile import ZipFile

import pytest

from strop.store.archive import LEFT_OUT, zip_files
from strop.store.filetree import FileTree


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "inner").mkdir()
    (tmp_path / "log").write_text("line\n" * 1000)
    (tmp_path / "inner" / "model.safetensors").write_bytes(os.urandom(700_000))
    (tmp_path / "inner" / "empty").touch()
    os.utime(tmp_path / "log", (0, 0))
    return tmp_path


def unpack(data: bytes) -> dict[str, bytes]:
    with ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


def test_an_archive_holds_every_file_of_the_tree(folder: Path) -> None:
    tree = FileTree(folder)
    files = unpack(b"".join(zip_files(tree, tree.files())))
    assert files == {entry.path: (folder / entry.path).read_bytes() for entry in tree.files()}
    assert len(files) == 3


def test_names_begin_after_the_folder_asked_for(folder: Path) -> None:
    tree = FileTree(folder)
    assert sorted(unpack(b"".join(zip_files(tree, tree.files("inner"), "inner")))) == ["empty", "model.safetensors"]


def test_files_that_go_meanwhile_are_named(folder: Path) -> None:
    tree = FileTree(folder)
    content = zip_files(tree, tree.files())
    (folder / "log").unlink()
    files = unpack(b"".join(content))
    assert files[LEFT_OUT].decode().splitlines()[1:] == ["log"]


def test_a_file_that_goes_or_grows_while_it_is_read_is_whole(folder: Path) -> None:
    tree = FileTree(folder)
    content = zip_files(tree, tree.files("inner"), "inner")
    weights = (folder / "inner" / "model.safetensors").read_bytes()
    parts = [next(content) for _ in range(3)]
    with open(folder / "inner" / "model.safetensors", "ab") as file:
        file.write(b"more")
    (folder / "inner" / "model.safetensors").unlink()
    assert unpack(b"".join([*parts, *content]))["model.safetensors"] == weights


def test_memory_does_not_grow_with_the_files(tmp_path: Path) -> None:
    with open(tmp_path / "weights.pt", "wb") as file:
        file.truncate(64 * 2**20)
    tree = FileTree(tmp_path)
    tracemalloc.start()
    total = sum(len(part) for part in zip_files(tree, tree.files()))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert total > 64 * 2**20
    assert peak < 4 * 2**20
