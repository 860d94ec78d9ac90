"""What the parts of a grader object have in common: strict objects, and fields that say what they want."""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainValidator, model_validator
from pydantic_core import PydanticCustomError

from strop.rewards.graders.template import Template, TemplateError, parse_template
from strop.types import Json

IGNORED = ("id", "pass_threshold", "invalid_grade")
"""Keys of evals, which documents show on graders for fine-tuning too; and Azure's grade for failures,
which here give none at all."""


def fault(why: str, *at: str) -> PydanticCustomError:
    """Make the error for a value; `at` leads to the key inside the value that is at fault."""
    return PydanticCustomError("fault", "{why}", {"why": why, "at": at})


def described(value: Json) -> str:
    """Say what a JSON value is, in a few words."""
    if isinstance(value, str):
        return f"the string {value[:60]!r}" if value else "an empty string"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    return json.dumps(value)[:60]


class Shape(BaseModel):
    """A JSON object. Unknown keys are refused; a key whose value is null counts as missing."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _check_keys(cls, value: Json) -> Json:
        if not isinstance(value, dict):
            raise fault(f"expected an object, found {described(value)}")
        known = [field.alias or name for name, field in cls.model_fields.items()]
        for key in value:
            if key not in known and key not in IGNORED:
                close = difflib.get_close_matches(key, known, n=1)
                hint = f"did you mean {close[0]!r}?" if close else f"expected one of {', '.join(known)}"
                raise fault(f"unknown key; {hint}", key)
        return {key: found for key, found in value.items() if found is not None and key in known}


def _text(value: Json) -> str:
    if not isinstance(value, str) or not value:
        raise fault(f"expected a string, found {described(value)}")
    return value


def _texts(value: Json) -> list[str]:
    if not isinstance(value, list) or not value or not all(isinstance(text, str) and text for text in value):
        raise fault(f"expected a list of strings, found {described(value)}")
    return value


def _template(value: Json) -> Template:
    if not isinstance(value, str):
        raise fault(f"expected a string, found {described(value)}")
    try:
        return parse_template(value)
    except TemplateError as error:
        raise fault(str(error)) from None


def is_number(value: Json) -> bool:
    """Whether a JSON value is a finite number that fits into a float; `true` is none."""
    if isinstance(value, int):
        return not isinstance(value, bool) and abs(value) < 2**64
    return isinstance(value, float) and math.isfinite(value)


def number(low: float, high: float, whole: bool = False) -> BeforeValidator:
    """A number within bounds."""
    kind: Callable[[Any], float] = int if whole else float
    wanted = f"expected a {'whole number' if whole else 'number'} from {low:g} to {high:g}"

    def check(value: Json) -> float:
        if not is_number(value) or not low <= value <= high or (whole and value != int(value)):
            raise fault(f"{wanted}, found {described(value)}")
        return kind(value)

    return BeforeValidator(check)


Text = Annotated[str, BeforeValidator(_text)]
"""A string that is not empty."""
Texts = Annotated[tuple[str, ...], BeforeValidator(_texts)]
"""A list of strings, at least one."""
TemplateText = Annotated[Template, PlainValidator(_template)]
"""A string with variables in it; it may be empty."""
