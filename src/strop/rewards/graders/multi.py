"""`multi`: several graders at the same time, and a formula over their values."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from strop.rewards.graders.base import Grade, Part, Values
from strop.rewards.graders.formula import Formula, FormulaError
from strop.types import Failure


class MultiPart:
    """The result of the formula. A part that the formula does not use is only shown."""

    def __init__(self, parts: Mapping[str, Part], formula: Formula) -> None:
        self._parts = parts
        self._formula = formula

    async def start(self) -> None:
        """Raises RewardError if one of the parts cannot be used."""
        for part in self._parts.values():
            await part.start()

    async def grade(self, sample: Values, item: Values, seed: int) -> Grade:
        """Grade one sample; it fails where a part fails that the formula needs."""
        made = await asyncio.gather(*(part.grade(sample, item, seed) for part in self._parts.values()))
        grades = dict(zip(self._parts, made, strict=True))
        value, failure = self._combined(grades)
        return Grade(
            value,
            failure,
            logs="".join(_section(name, grade) for name, grade in grades.items()),
            seconds=max(grade.seconds for grade in made),
            parts=grades,
        )

    async def close(self) -> None:
        """Close all parts."""
        for part in self._parts.values():
            await part.close()

    def _combined(self, grades: Mapping[str, Grade]) -> tuple[float | None, Failure | None]:
        needed = {name: grade for name, grade in grades.items() if name in self._formula.names}
        for name, grade in needed.items():
            if grade.failure:
                return None, Failure(grade.failure.cause, f"{name}: {grade.failure.message}", grade.failure.detail)
        values = {name: grade.value for name, grade in needed.items() if grade.value is not None}
        try:
            return self._formula.value(values), None
        except FormulaError as error:
            shown = ", ".join(f"{name} = {value:g}" for name, value in values.items())
            return None, Failure("formula", f"calculate_output: {error}, where {shown or self._formula.text}")


def _section(name: str, grade: Grade) -> str:
    """What a part has to say, under its name; its failure too, which may cost nothing."""
    text = grade.logs
    if grade.failure:
        text += f"failed: {grade.failure.message}\n"
    return f"[{name}] {text}" if text else ""
