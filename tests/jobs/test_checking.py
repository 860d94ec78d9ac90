"""Files of a job, read in a process of their own."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from strop.jobs.checking import CHECK
from strop.jobs.launcher import LocalLauncher
from strop.store.files import write_json
from strop.store.taskdir import read_object


def rows(path: Path, *prompts: str) -> str:
    path.write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in prompts))
    return str(path)


def result(folder: Path, *files: str) -> dict[str, Any]:
    """What the process leaves in its folder."""
    write_json(folder / "spec.json", {"files": files})
    launcher = LocalLauncher(CHECK)
    process = launcher.launch(folder, dict(os.environ), token=1)
    while (code := launcher.poll(process)) is None:
        time.sleep(0.02)
    assert code == 0
    return read_object(folder / "result.json")


def test_good_files_are_counted(tmp_path: Path) -> None:
    files = rows(tmp_path / "a", "one", "two"), rows(tmp_path / "b", "three")
    assert result(tmp_path, *files) == {"training": 2, "validation": 1}


def test_faults_come_with_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "a").write_text('{"prompt": "one"}\n{"prompt": 7}\n')
    assert f"{tmp_path / 'a'}:2: " in result(tmp_path, str(tmp_path / "a"))["error"]


def test_a_prompt_in_both_files_is_refused(tmp_path: Path) -> None:
    files = rows(tmp_path / "a", "one", "two"), rows(tmp_path / "b", "two")
    assert "same prompt as" in result(tmp_path, *files)["error"]


def test_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    assert "nowhere" in result(tmp_path, str(tmp_path / "nowhere"))["error"]


def test_files_are_read_without_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch.py").write_text("raise RuntimeError('torch was imported')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert result(tmp_path, rows(tmp_path / "a", "one")) == {"training": 1, "validation": 0}
