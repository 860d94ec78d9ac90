"""What every kind of grader object is."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from strop.rewards.graders.fields import Shape, Text
from strop.rewards.graders.grade import Part, Settings


def _type(values: dict[str, Any]) -> str:
    return str(values["type"])


class Grader(Shape):
    """A grader object of OpenAI's. A kind adds `type` as a literal, its fields and how it scores."""

    type: str
    name: Text = Field(default_factory=_type)

    def part(self, settings: Settings) -> Part:
        """Make what runs the grader, not started yet. Raises RewardError if a package is missing."""
        raise NotImplementedError
