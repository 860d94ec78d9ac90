"""Counting the tokens of prompts in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from models import save_tiny_model
from strop.data.rows import load_rows
from strop.errors import DataError, ModelError
from strop.policy.chat import ChatTemplate
from strop.worker.lengths import prompt_lengths


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model("llama", tmp_path_factory.mktemp("lengths") / "model")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rows = [
        {"prompt": "short"},
        {"prompt": "a longer question"},
        {"prompt": "x", "tools": [{"function": {"name": "f"}}]},
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path / "rows.jsonl"


def test_lengths_are_those_of_training_and_refused_rows_are_named(model: Path, data: Path) -> None:
    found = prompt_lengths(str(model), data, {})
    chat = ChatTemplate(AutoTokenizer.from_pretrained(model), "tiny", {})
    assert found["lengths"] == [len(chat.prompt_ids(row)) for row in load_rows(data)[:2]]
    assert found["refused"] == 1
    assert found["faults"][0]["line"] == 3
    assert "drops" in found["faults"][0]["message"]


def test_the_process_leaves_its_result_in_its_folder(model: Path, data: Path, tmp_path: Path) -> None:
    folder = tmp_path / "task"
    folder.mkdir()
    spec = {"model": str(model), "data": str(data), "template": {"odd": 1}}
    (folder / "spec.json").write_text(json.dumps(spec))
    subprocess.run([sys.executable, "-m", "strop.worker.lengths", str(folder)], timeout=120, check=True)
    assert len(json.loads((folder / "result.json").read_text())["lengths"]) == 2


def test_what_cannot_be_counted_is_an_error(model: Path, data: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no tokenizer"):
        prompt_lengths(str(tmp_path), data, {})
    data.write_text("{}")
    with pytest.raises(DataError):
        prompt_lengths(str(model), data, {})
