"""Errors in a data file."""

from __future__ import annotations

from dataclasses import dataclass

from strop.types import Json


@dataclass(frozen=True)
class Fault:
    """One error in a data file."""

    line: int
    """Line in the file, starting at 1; 0 for the whole file."""
    kind: str
    """Short name, used for counting."""
    problem: str
    """What was found."""
    remedy: str
    """What to do about it."""

    def __str__(self) -> str:
        return f"{self.problem}; {self.remedy}"


class Refused(Exception):
    """A fault whose line is not known yet. Never leaves the data layer."""

    def __init__(self, kind: str, problem: str, remedy: str) -> None:
        super().__init__(problem)
        self.kind, self.problem, self.remedy = kind, problem, remedy

    def at(self, line: int) -> Fault:
        """The fault at a line."""
        return Fault(line, self.kind, self.problem, self.remedy)


def describe(value: Json) -> str:
    """Describe a JSON value for messages: `the string 'abc'`, `a list`, `null`."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f"the string {clip(value)!r}"
    if isinstance(value, int | float):
        return f"the number {clip(str(value))}"
    return "a list" if isinstance(value, list) else "an object"


def clip(text: str, limit: int = 60) -> str:
    """Shorten a text and mark where it was cut."""
    return text if len(text) <= limit else text[:limit] + "…"
