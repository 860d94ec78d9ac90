"""The kinds of graders by `type`. A new one is a module with its class, and a line in `KINDS`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Union

from pydantic import Field

from strop.rewards.graders.grader import Grader
from strop.rewards.graders.judges import LabelModel, ScoreModel
from strop.rewards.graders.python import Python
from strop.rewards.graders.similarity import TextSimilarity
from strop.rewards.graders.string_check import StringCheck

KINDS: Mapping[str, type[Grader]] = {
    "string_check": StringCheck,
    "text_similarity": TextSimilarity,
    "python": Python,
    "score_model": ScoreModel,
    "label_model": LabelModel,
}
"""All but `multi`, which holds graders of these kinds."""


def one_of(kinds: Mapping[str, type[Grader]]) -> Any:
    """The type, for pydantic, of a grader of any of these kinds, told apart by `type`."""
    return Annotated[Union[tuple(kinds.values())], Field(discriminator="type")]  # noqa: UP007


if TYPE_CHECKING:
    Single = Grader
else:
    Single = one_of(KINDS)
