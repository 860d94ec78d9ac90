"""`strop presets`: reward functions and graders to start from."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.table import Table

from strop.cli.console import JsonOption, output, print_json
from strop.rewards.presets.index import find_preset
from strop.rewards.presets.index import presets as all_presets


def presets(
    name: Annotated[str | None, typer.Argument(help="Preset whose source is printed.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List the reward functions and graders to start from, or print the source of one.

    Example: `strop presets exact_match > reward.py`
    """
    found = list(all_presets().values()) if name is None else [find_preset(name)]
    if as_json:
        print_json([asdict(preset) for preset in found])
    elif name is not None:
        print(found[0].source, end="")
    else:
        table = Table(box=None)
        for heading in ("name", "kind", "rows need", "what it scores"):
            table.add_column(heading)
        for preset in found:
            table.add_row(preset.name, preset.kind, ", ".join(preset.needs), preset.description)
        output.print(table)
