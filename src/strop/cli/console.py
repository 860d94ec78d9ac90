"""Where the commands write: results to standard output, everything else to standard error."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console

from strop.types import Json

output = Console(highlight=False)
errors = Console(stderr=True, highlight=False)

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of a table.")]


def print_json(value: Json) -> None:
    """One JSON document on standard output, as it is: no colours, no wrapping."""
    print(json.dumps(value, ensure_ascii=False, indent=2))


def say(line: str) -> None:
    """A line about what is going on."""
    errors.print(line, markup=False, style="dim")
