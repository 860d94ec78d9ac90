"""`string_check`: is one text another, or in it?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator

from strop.rewards.graders.fields import TemplateText
from strop.rewards.graders.grade import Grade, Part, Settings, Values, absent
from strop.rewards.graders.grader import Grader
from strop.rewards.graders.template import Absent

CHECKS: Mapping[str, Callable[[str, str], bool]] = {
    "eq": lambda text, reference: text == reference,
    "ne": lambda text, reference: text != reference,
    "like": lambda text, reference: reference in text,
    "ilike": lambda text, reference: reference.casefold() in text.casefold(),
}


def _short(operation: str) -> str:
    """`neq`, as OpenAI's guide spells it, is `ne`."""
    return "ne" if operation == "neq" else operation


class StringCheck(Grader):
    """Compares two texts: 1 where the check holds, else 0."""

    type: Literal["string_check"]
    input: TemplateText
    reference: TemplateText
    operation: Annotated[Literal["eq", "ne", "like", "ilike", "neq"], AfterValidator(_short)]

    def part(self, settings: Settings) -> Part:
        """The grader itself: it needs nothing."""
        return self

    async def start(self) -> None:
        """Nothing to do."""

    async def grade(self, sample: Values, item: Values, seed: int) -> Grade:
        """Grade one sample."""
        try:
            text, reference = self.input.render(sample, item), self.reference.render(sample, item)
        except Absent as error:
            return absent(error, 0.0)
        return Grade(float(CHECKS[self.operation](text, reference)))

    async def close(self) -> None:
        """Nothing to do."""
