"""Request bodies: what a client may send, and how a mistake in it is named.

A key that does not exist is refused with the nearest one that does, as in configuration
files: what is silently ignored was never asked for.
"""

from __future__ import annotations

import difflib
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError


class Body(BaseModel):
    """A JSON object with known keys only. `model_dump(exclude_unset=True)` is what was sent."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown(cls, value: Any) -> Any:
        for key in value if isinstance(value, dict) else ():
            if key not in cls.model_fields:
                nearest = difflib.get_close_matches(str(key), cls.model_fields, n=1, cutoff=0.5)
                known = ", ".join(sorted(cls.model_fields))
                hint = f"did you mean {nearest[0]!r}?" if nearest else f"expected one of {known}"
                raise PydanticCustomError("unknown_key", "unknown key {key}; {hint}", {"key": str(key), "hint": hint})
        return value


def _auto(value: Any) -> Any:
    return None if value == "auto" else value


AUTO_INT = BeforeValidator(_auto, Literal["auto"] | int | None)
"""For a whole number that may be `auto`, which is read as None."""

AUTO_FLOAT = BeforeValidator(_auto, Literal["auto"] | float | None)
"""For a number that may be `auto`, which is read as None."""

Metadata = Annotated[
    dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]], Field(max_length=16)
]
"""Up to 16 pairs of strings that a client hangs on a thing and finds it by."""
