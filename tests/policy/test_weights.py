"""What the files of weights in a folder are, without loading them."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path

import pytest

from models import TinyModels, save_tiny_model, tiny_lora_policy
from strop.policy.checkpoint import save_weights
from strop.policy.weights import base_of, weight_count, whole_folder


def test_the_numbers_of_a_model_are_counted_by_the_headers_of_its_files(tiny: TinyModels) -> None:
    expected = sum(parameter.numel() for parameter in tiny.policy("qwen2").model.parameters())
    assert weight_count(tiny.folder("qwen2")) == expected


@pytest.mark.parametrize("content", [b"", b"\x05", struct.pack("<Q", 9) + b"{\x00\x01", struct.pack("<Q", 2) + b"[]"])
def test_a_damaged_header_counts_for_nothing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.safetensors").write_bytes(content)
    assert weight_count(tmp_path) == 0


def test_an_adapter_names_its_base_and_full_weights_have_none(tmp_path: Path, tiny: TinyModels) -> None:
    policy = tiny_lora_policy("llama", tmp_path / "base")
    save_weights(policy, tmp_path / "adapter")
    assert base_of(tmp_path / "adapter") == str(tmp_path / "base")
    assert base_of(tmp_path / "base") is None
    assert whole_folder(str(tmp_path / "adapter")) == tmp_path / "adapter"
    shutil.rmtree(tmp_path / "base")
    assert whole_folder(str(tmp_path / "adapter")) is None


def test_a_model_with_a_missing_file_is_not_whole(tmp_path: Path) -> None:
    folder = save_tiny_model("llama", tmp_path / "model")
    assert whole_folder(str(folder)) == folder
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    (folder / "model.safetensors").rename(folder / "model-1.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert whole_folder(str(folder)) is None
    shutil.copy(folder / "model-1.safetensors", folder / "model-2.safetensors")
    assert whole_folder(str(folder)) == folder


def test_a_folder_without_weights_is_no_whole_model(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert whole_folder(str(tmp_path)) is None
