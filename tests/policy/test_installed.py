"""What is on this machine, and which chat template it has."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from strop.policy.installed import chat_template, installed_folder


def make(folder: Path, **files: object) -> Path:
    folder.mkdir(parents=True)
    for name, content in files.items():
        file = folder / name.replace("__", ".")
        file.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return folder


def test_a_folder_is_installed_and_an_unknown_name_is_not(tmp_path: Path) -> None:
    folder = make(tmp_path / "model", config__json={})
    assert installed_folder(str(folder)) == folder
    assert installed_folder("nobody/nothing-of-that-name") is None
    for name in ("not a name at all!", "x" * 5000, "a\0b", "/" + "x" * 300):
        assert installed_folder(name) is None


def test_a_wheel_that_was_not_converted_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STROP_CACHE", str(tmp_path))
    assert installed_folder("smollm2-135m") is None
    folder = make(tmp_path / "models" / "smollm2-135m", config__json={})
    assert installed_folder("smollm2-135m") == folder


@pytest.mark.parametrize(
    ("files", "text"),
    [
        ({"chat_template__jinja": "a"}, "a"),
        ({"tokenizer_config__json": {"chat_template": "b"}}, "b"),
        ({"tokenizer_config__json": {"chat_template": [{"name": "x", "template": "c"}]}}, "c"),
        ({"tokenizer_config__json": {}}, ""),
        ({"tokenizer_config__json": "no json"}, ""),
        ({}, ""),
    ],
)
def test_the_template_is_found_in_either_place(tmp_path: Path, files: dict[str, object], text: str) -> None:
    assert chat_template(make(tmp_path / "model", config__json={}, **files)) == text


def test_an_adapter_without_a_template_has_that_of_its_base(tmp_path: Path) -> None:
    base = make(tmp_path / "base", config__json={}, chat_template__jinja="from the base")
    adapter = make(tmp_path / "adapter", adapter_config__json={"base_model_name_or_path": str(base)})
    assert chat_template(adapter) == "from the base"
