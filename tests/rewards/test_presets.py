"""Presets of rewards: each can be loaded, scores what it says, and needs of a row what it says."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from reward_files import reward

import strop.rewards.presets
from strop.errors import NotFound
from strop.rewards.graders.parse import parse_grader
from strop.rewards.pool import RewardPool
from strop.rewards.presets.index import Preset, find_preset, presets
from strop.rewards.reward_function import Outcome
from strop.types import Json

TRUTH = {"name": "Ann", "age": 31}


def scores(name: str, reference: Json, answers: Sequence[str], folder: Path) -> list[float]:
    """The total of each answer, in real reward processes."""

    async def run() -> list[Outcome]:
        pool = RewardPool(reward(folder, presets()[name].source))
        await pool.start()
        try:
            return [await pool.call({"output_text": answer}, {"reference": reference}, 0) for answer in answers]
        finally:
            await pool.close()

    values = [outcome.value for outcome in asyncio.run(run())]
    assert None not in values
    return [sum(value.values()) if isinstance(value, dict) else float(value or 0) for value in values]  # type: ignore[arg-type]


def test_every_preset_has_a_title_and_says_what_it_scores() -> None:
    for preset in presets().values():
        assert preset.title and "\n" not in preset.description
        assert preset.description.endswith(".")


def test_every_file_of_the_folder_is_listed() -> None:
    folder = Path(strop.rewards.presets.__file__).parent
    there = {file.stem for file in folder.iterdir() if file.suffix in (".py", ".json")}
    assert there - {"__init__", "index"} == set(presets())


@pytest.mark.parametrize(
    ("name", "reference", "answers", "expected"),
    [
        ("exact_match", "Paris", ["paris ", "It is Paris", ""], [1, 0, 0]),
        ("exact_match", 42, ["42", "43"], [1, 0]),
        ("number_match", "1204", ["So it is 1,204.", "1204.0", "1 or 2", "none"], [1, 1, 0, 0]),
        (
            "json_fields",
            TRUTH,
            ['{"name": "Ann", "age": 31}', '{"name": "Ann"}', "{}", "[]", "[" * 9999],
            [1, 0.6, 0.2, 0, 0],
        ),
        ("pattern", None, ["Answer: 7", "7"], [1, 0]),
        ("length", None, ["word " * 100, "word " * 150, "word " * 300, ""], [1, 0.5, 0, 0]),
        ("custom", None, ["anything"], [0]),
    ],
)
def test_presets_score_what_they_say(
    name: str, reference: Json, answers: list[str], expected: list[float], tmp_path: Path
) -> None:
    assert scores(name, reference, answers, tmp_path) == pytest.approx(expected)


def row_with(needs: Sequence[str]) -> dict[str, Json]:
    """An item that has these paths and nothing else; `3` fits all that presets compare with."""
    item: dict[str, Json] = {"prompt": "?", "metadata": {}}
    for path in needs:
        *parents, last = path.split(".")
        here = item
        for name in parents:
            here = here.setdefault(name, {})
        here[last] = VALUES.get(path, "3")
    return item


VALUES: dict[str, Json] = {"metadata.tests": [{"argument": 1, "expected": 3}], "metadata.accepted": ["3"]}
PYTHON = [preset for preset in presets().values() if preset.kind == "python"]


def failures(preset: Preset, item: Json, folder: Path) -> list[str]:
    """What goes wrong with the answers `3` and `{}` to a row."""

    async def run() -> list[Outcome]:
        pool = RewardPool(reward(folder, preset.source))
        await pool.start()
        try:
            return [await pool.call({"output_text": answer}, item, 0) for answer in ("3", "{}", "def f(n): return n")]
        finally:
            await pool.close()

    return [outcome.failure.message for outcome in asyncio.run(run()) if outcome.failure]


@pytest.mark.parametrize("preset", PYTHON, ids=lambda preset: preset.name)
def test_a_row_with_what_a_function_needs_is_scored_and_one_without_fails(preset: Preset, tmp_path: Path) -> None:
    truth = {"json_fields": {"a": 3}}.get(preset.name)
    item = row_with(preset.needs) | ({"reference": truth} if truth else {})
    assert failures(preset, item, tmp_path) == []
    if preset.needs:
        assert failures(preset, {"prompt": "?", "metadata": {}}, tmp_path) != []


@pytest.mark.parametrize(
    "preset", [preset for preset in presets().values() if preset.kind == "grader"], ids=lambda preset: preset.name
)
def test_a_grader_is_valid_and_reads_what_it_needs(preset: Preset) -> None:
    parse_grader(json.loads(preset.source))
    read = set(re.findall(r"\{\{ item\.([a-z_.]+) \}\}", preset.source))
    assert read - {"prompt"} == set(preset.needs)


def test_an_unknown_preset_names_the_known_ones() -> None:
    with pytest.raises(NotFound, match=r"'nope'.*exact_match, number_match"):
        find_preset("nope")
