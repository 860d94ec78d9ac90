"""`strop data check`: report the contents and errors of a data file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from strop.cli.console import JsonOption, errors, output, print_json
from strop.data.rows import DataReport, check_rows

app = typer.Typer(help="Check data files.", no_args_is_help=True)


@app.callback()
def _root() -> None:
    """Check data files."""


@app.command()
def check(
    file: Annotated[Path, typer.Argument(help="JSONL file with one row per line.")],
    as_json: JsonOption = False,
) -> None:
    """Check every row of a data file and report all errors.

    The exit code is 1 if there are errors.

    Example: `strop data check train.jsonl`
    """
    report = check_rows(file)
    if as_json:
        print_json(report.as_dict())
    else:
        _show(report)
    raise typer.Exit(1 if report.faults else 0)


def _show(report: DataReport) -> None:
    if report.rows:
        output.print(f"{report.path}: {len(report.rows):,} rows", markup=False, soft_wrap=True)
        table = Table(box=None)
        table.add_column("field")
        table.add_column("rows", justify="right")
        for name, count in sorted(report.coverage.items(), key=lambda entry: -entry[1]):
            table.add_row(name, f"{count:,}")
        output.print(table)
        counts = report.counts
        output.print(
            f"{counts['with_reference']:,} with a reference answer, {counts['with_tools']:,} with tools, "
            f"{counts['repeated']:,} duplicates"
        )
    if report.faults:
        errors.print(report.explain(), markup=False, soft_wrap=True)
        errors.print(f"{report.fault_count:,} errors", style="bold red")
    else:
        output.print("no faults", style="green")
