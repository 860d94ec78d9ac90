"""Presets of rewards as pages offer them, judges at known providers among them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from strop.rewards.presets.index import Preset, find_preset
from strop.services.providers import Provider
from strop.types import Json


def judges(providers: Sequence[Provider]) -> Mapping[str, Preset]:
    """For each provider, a judge preset whose model is available."""
    judge = find_preset("judge")
    found = {}
    for provider in providers:
        grader = {**json.loads(judge.source), "model": "name-of-a-model", "base_url": provider.base_url}
        if provider.api_key_env:
            grader["api_key_env"] = provider.api_key_env
        name = f"provider:{provider.name}"
        found[name] = replace(
            judge,
            name=name,
            title=f"Grader at {provider.name}: model as judge",
            description=f"A model of {provider.name} scores the answer.",
            source=pretty(grader),
            env=(provider.api_key_env,) if provider.api_key_env else (),
        )
    return found


def pretty(grader: Json) -> str:
    """A grader's JSON for people."""
    return json.dumps(grader, ensure_ascii=False, indent=2) + "\n"


def content(kind: str, source: str) -> dict[str, Json]:
    """A source as the API takes it. ValueError for a grader that is no JSON."""
    return {"python": source} if kind == "python" else {"grader": json.loads(source)}
