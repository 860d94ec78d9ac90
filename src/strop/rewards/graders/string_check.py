"""`string_check`: is one text another, or in it?"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from strop.rewards.graders.base import Grade, Settings, Values, absent
from strop.rewards.graders.shapes import StringCheck
from strop.rewards.graders.template import Absent

_CHECKS: Mapping[str, Callable[[str, str], bool]] = {
    "eq": lambda text, reference: text == reference,
    "ne": lambda text, reference: text != reference,
    "like": lambda text, reference: reference in text,
    "ilike": lambda text, reference: reference.casefold() in text.casefold(),
}


class StringCheckPart:
    """1 where the check holds, else 0."""

    def __init__(self, grader: StringCheck, settings: Settings) -> None:
        self._grader = grader

    async def start(self) -> None:
        """Nothing to do."""

    async def grade(self, sample: Values, item: Values, seed: int) -> Grade:
        """Grade one sample."""
        try:
            text = self._grader.input.render(sample, item)
            reference = self._grader.reference.render(sample, item)
        except Absent as error:
            return absent(error, 0.0)
        return Grade(float(_CHECKS[self._grader.operation](text, reference)))

    async def close(self) -> None:
        """Nothing to do."""
