"""`multi`: several graders at the same time, and a formula over their values."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Discriminator, Field, PlainValidator, Tag, model_validator

from strop.rewards.graders.fields import described, fault
from strop.rewards.graders.formula import Formula, FormulaError, parse_formula
from strop.rewards.graders.grade import Grade, Part, Settings, Values
from strop.rewards.graders.grader import Grader
from strop.rewards.graders.kinds import Single
from strop.types import Failure, Json

MAX_PARTS = 32
NEEDS_NAMES = (
    "a list of graders needs names to use in calculate_output: give each a `name` of letters, digits and _ "
    "that differs from the others, or write `graders` as an object"
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _form(graders: Json) -> str:
    """Which of the three forms that OpenAI's documents show."""
    if isinstance(graders, list):
        return "in a list"
    return "alone" if isinstance(graders.get("type"), str) else "by name"


def _check_graders(value: Json) -> Json:
    if not isinstance(value, dict | list):
        raise fault(f"expected an object of graders by name, found {described(value)}")
    entries = enumerate(value) if isinstance(value, list) else value.items()
    for key, entry in entries:
        if isinstance(entry, dict) and entry.get("type") == "multi":
            raise fault("a multi grader cannot hold another multi grader", str(key), "type")
    return value


def _formula(text: Json) -> Formula:
    if not isinstance(text, str) or not text:
        raise fault(f"expected a string, found {described(text)}")
    try:
        return parse_formula(text)
    except FormulaError as error:
        raise fault(f"{text!r} is not a formula: {error}") from None


class Multi(Grader):
    """Several graders, and the formula that makes one number of theirs."""

    type: Literal["multi"]
    graders: Annotated[
        Annotated[dict[str, Single], Tag("by name")]
        | Annotated[tuple[Single, ...], Tag("in a list")]
        | Annotated[Single, Tag("alone")],
        Discriminator(_form),
        BeforeValidator(_check_graders),
    ]
    formula: Annotated[Formula, PlainValidator(_formula)] = Field(alias="calculate_output")

    @cached_property
    def parts(self) -> Mapping[str, Grader]:
        """The graders by the names that the formula uses.

        In a list these are their own where they are fit for a formula, else the type, as OpenAI's
        example has it: `string_check_score`.
        """
        if isinstance(self.graders, dict):
            return self.graders
        listed = self.graders if isinstance(self.graders, tuple) else (self.graders,)
        return {_listed_name(grader): grader for grader in listed}

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        for name in self.parts:
            if not _NAME.fullmatch(name):
                why = "its name must be letters, digits and _, so that the formula can use it"
                raise fault(why, "graders", name)
        if isinstance(self.graders, tuple) and len(self.parts) < len(self.graders):
            raise fault(NEEDS_NAMES, "graders")
        if not 1 <= len(self.parts) <= MAX_PARTS:
            raise fault(f"{len(self.parts)} graders; a multi grader has 1 to {MAX_PARTS}", "graders")
        unknown = sorted(self.formula.names - self.parts.keys())
        if unknown:
            there = ", ".join(self.parts)
            raise fault(f"there is no grader {unknown[0]!r}; there are {there}", "calculate_output")
        return self

    def part(self, settings: Settings) -> Part:
        """Run all graders."""
        parts = {name: grader.part(settings.of_part(name)) for name, grader in self.parts.items()}
        return _MultiPart(parts, self.formula)


def _listed_name(grader: Grader) -> str:
    named = "name" in grader.model_fields_set and _NAME.fullmatch(grader.name)
    return grader.name if named else f"{grader.type}_score"


class _MultiPart:
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
