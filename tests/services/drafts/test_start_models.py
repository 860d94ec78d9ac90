from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from models import save_tiny_model
from strop.policy.catalogue import CATALOGUE
from strop.services.drafts.start_models import Room, catalogue, described, guessed_size, this_machine


def test_the_catalogue_tells_size_and_need() -> None:
    known = {choice.name: choice for choice in catalogue()}
    assert list(known) == list(CATALOGUE)
    assert known["qwen3-4b-instruct-2507"].memory_gb("lora") == pytest.approx(8.8)
    assert known["qwen3-4b-instruct-2507"].memory_gb("full") == 88


@pytest.mark.parametrize(
    "need, fit", [(None, "unknown"), (5.0, "fits"), (9.0, "tight"), (10.0, "tight"), (10.1, "too large")]
)
def test_whether_a_model_fits(need: float | None, fit: str) -> None:
    assert Room("GPU", 10.0).fit(need) == fit


def test_this_machine_has_room() -> None:
    assert this_machine().gb > 0.5


@pytest.mark.parametrize(
    "name, size",
    [
        ("Qwen/Qwen3-4B", 4.0),
        ("meta-llama/Llama-3.2-1B-Instruct", 1.0),
        ("HuggingFaceTB/SmolLM2-135M", 0.135),
        ("Qwen/Qwen3-30B-A3B", 30.0),
        ("google/gemma-3-270m-it", 0.27),
        ("org/model", None),
        ("org/v2.5-big", None),
    ],
)
def test_a_size_by_the_name(name: str, size: float | None) -> None:
    assert guessed_size(name) == size


def test_a_folder_is_counted(place: Any, tmp_path: Path) -> None:
    folder = save_tiny_model("llama", tmp_path / "model")
    found = described.blocking(place.services, str(folder))
    assert found.here and not found.guessed
    assert found.parameters is not None and 0 < found.parameters < 0.001


def test_a_model_that_is_not_here_is_guessed(place: Any) -> None:
    found = described.blocking(place.services, "org/model-7b")
    assert (found.here, found.guessed, found.parameters) == (False, True, 7.0)


def test_a_checkpoint_that_is_gone_is_still_named(place: Any) -> None:
    assert described.blocking(place.services, "ftckpt_gone").parameters is None
