"""The kinds of graders by `type`. A new one is a module with its class, and a line in `KINDS`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Union

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

if TYPE_CHECKING:
    Single = Grader
else:
    Single = Annotated[Union[tuple(KINDS.values())], Field(discriminator="type")]  # noqa: UP007
