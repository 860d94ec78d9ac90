"""Reward functions and graders to start from, as pages offer them."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from strop.api.strop.rewards import list_starters
from strop.store.providers import Provider
from strop.types import Json
from strop.web.catalogues import samples


@dataclass(frozen=True)
class Start:
    """Something to start from."""

    id: str
    title: str
    description: str
    kind: Literal["python", "grader"]
    source: str
    """Python code, or the JSON of a grader."""
    env: tuple[str, ...] = ()
    """Secrets that it needs."""


_EXACT: dict[str, Json] = {
    "type": "string_check",
    "name": "exact",
    "operation": "ilike",
    "input": "{{ sample.output_text }}",
    "reference": "{{ item.reference }}",
}
_SIMILAR: dict[str, Json] = {
    "type": "text_similarity",
    "name": "similar",
    "evaluation_metric": "rouge_l",
    "input": "{{ sample.output_text }}",
    "reference": "{{ item.reference }}",
}
_SEVERAL: dict[str, Json] = {
    "type": "multi",
    "name": "quality",
    "graders": {"exact": _EXACT, "similar": _SIMILAR},
    "calculate_output": "0.8 * exact + 0.2 * similar",
}
_JUDGE: dict[str, Json] = {
    "type": "score_model",
    "name": "judge",
    "model": "gpt-4.1-mini",
    "input": [
        {"role": "system", "content": "You check answers. Score how correct the answer is, from 0 to 1."},
        {
            "role": "user",
            "content": "Question: {{ item.prompt }}\nExpected: {{ item.reference }}\nAnswer: {{ sample.output_text }}",
        },
    ],
    "range": [0, 1],
    "sampling_params": {"temperature": 0},
}
_GRADERS = (
    (
        "grader_text",
        "Grader: text check",
        "1 if the completion contains the reference (case-insensitive), else 0.",
        _EXACT,
    ),
    ("grader_similar", "Grader: similarity", "Word overlap with the reference, from 0 to 1.", _SIMILAR),
    ("grader_several", "Grader: multi", "Combines several graders with a formula.", _SEVERAL),
    (
        "grader_judge",
        "Grader: LLM judge",
        "A model scores the completion. Needs an API key, stored as a secret.",
        _JUDGE,
    ),
)


@functools.cache
def starts() -> Mapping[str, Start]:
    """All of them by id: Python functions, those of the samples, and graders."""
    functions = [Start(one.id, one.title, one.description, "python", one.python) for one in list_starters().data]
    of_samples = [
        Start(f"sample:{one.id}", f"Sample: {one.title}", one.description, "python", one.reward) for one in samples()
    ]
    graders = [Start(name, title, about, "grader", pretty(grader)) for name, title, about, grader in _GRADERS]
    return {start.id: start for start in (*functions, *of_samples, *graders)}


def judges(providers: Sequence[Provider]) -> Mapping[str, Start]:
    """For each provider, a grader whose judge is a model there."""
    found = {}
    for provider in providers:
        judge = {**_JUDGE, "model": "name-of-a-model", "base_url": provider.base_url}
        if provider.api_key_env:
            judge["api_key_env"] = provider.api_key_env
        name, env = f"provider:{provider.name}", (provider.api_key_env,) if provider.api_key_env else ()
        title, about = f"Grader: LLM judge at {provider.name}", f"A model at {provider.name} scores the completion."
        found[name] = Start(name, title, about, "grader", pretty(judge), env)
    return found


def pretty(grader: Json) -> str:
    """A grader's JSON for people."""
    return json.dumps(grader, ensure_ascii=False, indent=2) + "\n"


def content(kind: str, source: str) -> dict[str, Json]:
    """A source as the API takes it. ValueError for a grader that is no JSON."""
    return {"python": source} if kind == "python" else {"grader": json.loads(source)}


def reward_name(title: str) -> str:
    """What can be of a title in the name of a reward: `exact_match` for `Exact match`."""
    name = re.sub(r"[^a-z0-9]+", "_", title.rpartition(": ")[2].lower()).strip("_")
    return name if re.match("[a-z]", name) else "reward"
