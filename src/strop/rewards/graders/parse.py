"""From JSON to a grader."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from strop.rewards.graders.grader import Grader
from strop.rewards.graders.kinds import Single
from strop.rewards.graders.multi import Multi
from strop.rewards.graders.refusals import refusal
from strop.types import Json

_ANY: TypeAdapter[Grader] = TypeAdapter(Annotated[Single | Multi, Field(discriminator="type")])


def parse_grader(value: Json, where: str = "grader") -> Grader:
    """Read the grader that a JSON value describes. Raises InvalidRequest; `where` begins its `param`."""
    try:
        return _ANY.validate_python(value)
    except ValidationError as error:
        raise refusal(error, value, where) from None
