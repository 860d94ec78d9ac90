"""The presets by name. A new one is a file in this folder, `NAME.py` or `NAME.json`, and an entry in `_ALL`."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal

from strop.errors import NotFound


@dataclass(frozen=True)
class Preset:
    """A reward to start from."""

    name: str
    title: str
    description: str
    """One sentence: what it scores."""
    kind: Literal["python", "grader"]
    source: str
    """Python code that defines `grade(sample, item)`, or the JSON of a grader."""
    needs: tuple[str, ...] = ()
    """Paths that every row must have, such as `metadata.tests`; `reference` is the reference answer."""
    env: tuple[str, ...] = ()
    """Secrets that it gets to see."""


@dataclass(frozen=True)
class _Entry:
    name: str
    title: str
    description: str
    needs: tuple[str, ...] = ()


_REFERENCE = ("reference",)
_ALL = (
    _Entry(
        "exact_match",
        "Exact match",
        "1 if the completion equals the reference (ignoring case and whitespace), else 0.",
        _REFERENCE,
    ),
    _Entry(
        "number_match", "Number match", "1 if the last number in the completion is the reference, else 0.", _REFERENCE
    ),
    _Entry(
        "json_fields", "JSON fields", "0.2 for a JSON object, plus 0.8 times the share of correct fields.", _REFERENCE
    ),
    _Entry("pattern", "Regular expression", "1 if the whole completion matches a regular expression, else 0."),
    _Entry("length", "Length", "1 up to 100 words, decreasing to 0 at 200 words."),
    _Entry("custom", "Custom", "An empty function with comments about its arguments."),
    _Entry(
        "sample_json_extraction",
        "Sample: JSON extraction",
        "Scores a JSON object with name and age, with partial credit for each correct part.",
        ("metadata.ground_truth.name", "metadata.ground_truth.age"),
    ),
    _Entry(
        "sample_maths",
        "Sample: Maths",
        "Scores the last number in the completion, plus a small bonus for a number only.",
        ("metadata.ground_truth",),
    ),
    _Entry(
        "sample_coding",
        "Sample: Coding",
        "Scores a Python function with the tests of its row, in a separate process.",
        ("metadata.function", "metadata.tests"),
    ),
    _Entry(
        "sample_search_qa",
        "Sample: Search QA",
        "Scores a short answer by its word overlap with the reference.",
        ("metadata.ground_truth",),
    ),
    _Entry(
        "sample_short_answers",
        "Sample: Short answers",
        "Scores a short answer against the accepted answers of its row.",
        ("metadata.accepted",),
    ),
    _Entry(
        "text_check",
        "Grader: text check",
        "1 if the completion contains the reference (ignoring case), else 0.",
        _REFERENCE,
    ),
    _Entry("similarity", "Grader: similarity", "Word overlap with the reference, from 0 to 1.", _REFERENCE),
    _Entry("several", "Grader: multi", "Combines several graders with a formula.", _REFERENCE),
    _Entry("judge", "Grader: LLM judge", "A model scores the completion; its API key must be a secret.", _REFERENCE),
)


@functools.cache
def presets() -> Mapping[str, Preset]:
    """All presets by name."""
    return {entry.name: _read(entry) for entry in _ALL}


def find_preset(name: str) -> Preset:
    """The preset of a name. Raises NotFound that lists the names there are."""
    if name not in presets():
        raise NotFound(f"no preset {name!r}; expected one of {', '.join(presets())}", param="preset")
    return presets()[name]


def _read(entry: _Entry) -> Preset:
    folder = files("strop.rewards.presets")
    python = folder / f"{entry.name}.py"
    file = python if python.is_file() else folder / f"{entry.name}.json"
    kind: Literal["python", "grader"] = "python" if file is python else "grader"
    return Preset(entry.name, entry.title, entry.description, kind, file.read_text(encoding="utf-8"), entry.needs)
