"""Temporary folders: removed by their owner, or by the next process where the owner was killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from strop.rewards.scratch import ScratchFolder

KILLED = """
import os, signal
from strop.rewards.scratch import ScratchFolder
folder = ScratchFolder()
(folder.path / "left").mkdir()
print(folder.path, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    return tmp_path


def test_a_folder_is_removed_with_all_that_is_in_it(temporary: Path) -> None:
    folder = ScratchFolder()
    (folder.path / "inner").mkdir()
    folder.remove()
    folder.remove()
    assert list(temporary.iterdir()) == []


def test_the_folder_of_a_killed_process_is_removed_by_the_next_one() -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED], capture_output=True, text=True, check=False)
    left = Path(killed.stdout.strip())
    assert left.is_dir()
    folder = ScratchFolder()
    assert not left.exists()
    folder.remove()


def test_the_folder_of_a_live_owner_stays() -> None:
    first, second = ScratchFolder(), ScratchFolder()
    assert first.path.is_dir()
    first.remove()
    second.remove()


def test_other_things_of_that_name_stay(temporary: Path) -> None:
    (temporary / "strop-reward-notes.txt").write_text("mine")
    (temporary / "strop-reward-link").symlink_to(temporary)
    ScratchFolder().remove()
    assert (temporary / "strop-reward-notes.txt").exists()
