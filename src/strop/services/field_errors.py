"""What the server has against a value, by the field that it stands in."""

from __future__ import annotations

from pydantic import ValidationError

from strop.errors import StropError
from strop.http.errors import param_of


def faults(error: StropError | ValueError) -> dict[str, str]:
    """Messages by field, as the API names it; under an empty name where no field is at fault.

    A ValueError is pydantic's, or that of JSON which cannot be read.
    """
    if isinstance(error, StropError):
        return {error.param or "": _without(error.message, error.param or "")}
    if not isinstance(error, ValidationError):
        return {"": f"not valid JSON: {error}"}
    found: dict[str, str] = {}
    for fault in error.errors():
        unknown = (fault["ctx"]["key"],) if fault["type"] == "unknown_key" else ()
        found.setdefault(param_of((*fault["loc"], *unknown)) or "", fault["msg"])
    return found


def _without(message: str, param: str) -> str:
    """The message without the name of the field in front: it is shown there."""
    for start in (f"{param}: ", f"strop: {param.removeprefix('strop.')}: "):
        if message.startswith(start) and "\n" not in message:
            return message[len(start) :]
    return f"this {message[len(param) + 1 :]}" if param and message.startswith(f"{param} ") else message
