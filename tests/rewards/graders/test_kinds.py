"""The kinds of graders: a class with fields and scoring, and a line in the list, make a new one."""

from __future__ import annotations

import asyncio
from typing import Any, Literal, get_args

import pytest
from grading import settings
from pydantic import TypeAdapter, ValidationError

from strop.rewards.graders.fields import TemplateText
from strop.rewards.graders.grade import Grade, Part, Settings, Values
from strop.rewards.graders.grader import Grader
from strop.rewards.graders.kinds import KINDS, one_of
from strop.rewards.graders.refusals import refusal


class WordCount(Grader):
    """The number of words of a text."""

    type: Literal["word_count"]
    input: TemplateText

    def part(self, settings: Settings) -> Part:
        return self

    async def start(self) -> None: ...

    async def grade(self, sample: Values, item: Values, seed: int) -> Grade:
        return Grade(float(len(self.input.render(sample, item).split())))

    async def close(self) -> None: ...


ADAPTER: TypeAdapter[Grader] = TypeAdapter(one_of({**KINDS, "word_count": WordCount}))
COUNT: dict[str, Any] = {"type": "word_count", "input": "{{ sample.output_text }}"}


@pytest.mark.parametrize("name", KINDS)
def test_a_kind_is_listed_under_its_type(name: str) -> None:
    assert get_args(KINDS[name].model_fields["type"].annotation) == (name,)


def test_a_new_kind_is_read_and_scores() -> None:
    grader = ADAPTER.validate_python(COUNT)
    part = grader.part(Settings(settings(), {}))
    assert grader.name == "word_count"
    assert asyncio.run(part.grade({"output_text": "one two three"}, {}, 0)).value == 3.0


def test_a_fault_in_a_new_kind_is_explained_like_any_other() -> None:
    value = COUNT | {"inptu": "x"}
    with pytest.raises(ValidationError) as caught:
        ADAPTER.validate_python(value)
    assert refusal(caught.value, value, "grader").message == "grader.inptu: unknown key; did you mean 'input'?"
