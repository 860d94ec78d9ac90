"""The reward functions to start from, by name."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files


@dataclass(frozen=True)
class Starter:
    """A reward function to start from."""

    name: str
    title: str

    @property
    def source(self) -> str:
        """The whole file."""
        return (files("strop.rewards.starters") / f"{self.name}.py").read_text(encoding="utf-8")

    @property
    def description(self) -> str:
        """What it scores, in one line."""
        return ast.get_docstring(ast.parse(self.source)) or ""


STARTERS: Mapping[str, Starter] = {
    starter.name: starter
    for starter in (
        Starter("exact_match", "Exact match"),
        Starter("number_match", "Number match"),
        Starter("json_fields", "JSON fields"),
        Starter("pattern", "Regular expression"),
        Starter("length", "Length"),
        Starter("custom", "Custom"),
    )
}
