"""Console output: results go to standard output, everything else to standard error."""

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
    """Print one JSON document to standard output, without colours or wrapping."""
    print(json.dumps(value, ensure_ascii=False, indent=2))


def say(line: str) -> None:
    """Print a status line to standard error."""
    errors.print(line, markup=False, style="dim")
