"""Models by name, without torch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from strop.policy.catalogue import CATALOGUE, cache_folder, find_entry, local_folder

# What the design promises by name.
PROMISED = {
    "smollm2-135m": "HuggingFaceTB/SmolLM2-135M-Instruct",
    "qwen3-0.6b": "Qwen/Qwen3-0.6B",
    "qwen3-1.7b": "Qwen/Qwen3-1.7B",
    "qwen3-4b-instruct-2507": "Qwen/Qwen3-4B-Instruct-2507",
    "qwen3-4b-thinking-2507": "Qwen/Qwen3-4B-Thinking-2507",
    "qwen3-30b-a3b-instruct-2507": "Qwen/Qwen3-30B-A3B-Instruct-2507",
    "qwen3-30b-a3b-thinking-2507": "Qwen/Qwen3-30B-A3B-Thinking-2507",
}


def make_model(folder: Path, file: str = "config.json") -> Path:
    folder.mkdir(parents=True)
    (folder / file).write_text("{}", encoding="utf-8")
    return folder


def test_the_catalogue_names_what_it_promises() -> None:
    assert {name: CATALOGUE[name].repository for name in PROMISED} == PROMISED


def test_entries_are_found_by_their_own_names_only_once() -> None:
    assert all(name == entry.name for name, entry in CATALOGUE.items())
    repositories = [entry.repository.casefold() for entry in CATALOGUE.values()]
    assert len(set(repositories)) == len(repositories)


@pytest.mark.parametrize("name", ["qwen3-0.6b", "Qwen3-0.6B", "Qwen/Qwen3-0.6B", "qwen/qwen3-0.6b", "QWEN3-0.6B"])
def test_an_entry_is_found_with_and_without_owner_in_any_case(name: str) -> None:
    entry = find_entry(name)
    assert entry is not None and entry.name == "qwen3-0.6b"


@pytest.mark.parametrize("name", ["", "qwen3", "Someone/Qwen3-0.6B-tuned", "Someone/Qwen3-0.6B", "./qwen3-0.6b"])
def test_other_names_are_no_entries(name: str) -> None:
    assert find_entry(name) is None


def test_every_entry_says_what_one_needs_to_choose() -> None:
    for entry in CATALOGUE.values():
        assert entry.licence and entry.summary
        assert entry.memory_gb("lora") < entry.memory_gb("full")
        assert entry.memory_gb("lora") >= 2 * entry.parameters


def test_the_default_model_comes_from_a_wheel_with_a_pinned_hash() -> None:
    wheel = CATALOGUE["smollm2-135m"].wheel
    assert wheel is not None
    assert "==" in wheel.requirement and len(wheel.sha256) == 64
    assert wheel.member.endswith(".gguf")


def test_the_cache_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("STROP_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.setenv("STROP_CACHE", "")
    assert cache_folder() == Path.home() / ".cache" / "strop"
    monkeypatch.delenv("STROP_CACHE")
    assert cache_folder() == Path.home() / ".cache" / "strop"


def test_a_folder_is_local_once_it_holds_a_model_or_an_adapter(tmp_path: Path) -> None:
    assert local_folder(str(make_model(tmp_path / "model"))) == tmp_path / "model"
    assert local_folder(str(make_model(tmp_path / "tuned", "adapter_config.json"))) == tmp_path / "tuned"
    (tmp_path / "empty").mkdir()
    assert local_folder(str(tmp_path / "empty")) is None
    assert local_folder(str(tmp_path / "missing")) is None


def test_a_model_from_a_wheel_is_local_once_it_is_in_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("STROP_CACHE", str(tmp_path))
    assert local_folder("smollm2-135m") is None
    folder = make_model(tmp_path / "models" / "smollm2-135m")
    assert local_folder("smollm2-135m") == local_folder("HuggingFaceTB/SmolLM2-135M-Instruct") == folder


def test_a_model_from_the_hub_is_left_to_the_hubs_own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("STROP_CACHE", str(tmp_path))
    make_model(tmp_path / "models" / "qwen3-0.6b")
    assert local_folder("qwen3-0.6b") is None


def test_the_catalogue_does_not_import_torch() -> None:
    code = "import sys, strop.policy.catalogue; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    assert subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == 0
