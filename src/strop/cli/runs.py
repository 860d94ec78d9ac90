"""`strop runs`: list, show, export and import runs."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from strop.cli.console import JsonOption, errors, output, print_json
from strop.cli.options import DatabaseUrl, DataDir
from strop.cli.remote import Remote, server_missing
from strop.store.datafolder import DataFolder
from strop.store.files import json_line, write_atomic
from strop.store.rundir import RunDir, RunState
from strop.types import Json

app = typer.Typer(help="List, show and export runs.", no_args_is_help=True)

_BARS = "▁▂▃▄▅▆▇█"


@app.command("list")
def list_runs(
    folder: Annotated[Path, typer.Option("--in", help="Folder that contains run folders.")] = Path("runs"),
    as_json: JsonOption = False,
) -> None:
    """List runs, newest first.

    Example: `strop runs list`
    """
    paths = [file.parent for file in folder.glob("*/config.toml")]
    facts = [_facts(RunDir.open(path)) for path in sorted(paths, key=lambda path: path.stat().st_mtime, reverse=True)]
    if as_json:
        print_json(facts)
        return
    if not facts:
        errors.print(f"no runs in {folder}; start one with: strop train CONFIG.toml", markup=False)
        return
    table = Table(box=None)
    for name in ("run", "state", "step", "reward", "validation", "rewards so far"):
        table.add_column(name, justify="right" if name in ("step", "reward", "validation") else "left")
    for fact in facts:
        step = f"{fact['step']}/{fact['total_steps'] or '?'}"
        curve = sparkline(fact["rewards"], 24)
        table.add_row(fact["run"], fact["state"], step, _number(fact["reward"]), _number(fact["validation"]), curve)
    output.print(table)


@app.command()
def show(run: Annotated[Path, typer.Argument(help="Run folder.")], as_json: JsonOption = False) -> None:
    """Show a run's state, latest metrics, reward curve and checkpoints.

    Example: `strop runs show runs/json-extraction-20260102-150405`
    """
    opened = RunDir.open(run)
    metrics = opened.metrics()
    checkpoints = opened.checkpoint_status()
    if as_json:
        print_json({**_facts(opened), "metrics": metrics[-1] if metrics else {}, "checkpoints": checkpoints})
        return
    facts, config = _facts(opened), opened.config()
    output.print(f"{run}: {facts['state']}, step {facts['step']} of {facts['total_steps'] or '?'}", markup=False)
    if facts["message"]:
        output.print(facts["message"], markup=False, style="yellow")
    output.print(f"model {config.model}, {config.train.method}, {config.train.loss}", markup=False)
    output.print(f"reward {sparkline(facts['rewards'], 60)} {_number(facts['reward'])}")
    if metrics:
        output.print(_metrics_table(metrics[-1]))
    output.print(_checkpoint_table(checkpoints))


@app.command()
def export(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    rollouts: Annotated[
        bool, typer.Option("--rollouts", help="Export all rollouts as JSONL instead of metrics as CSV.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Output file. Default: standard output.")] = None,
) -> None:
    """Export a run's metrics as CSV or its rollouts as JSONL.

    Example: `strop runs export runs/demo --rollouts --out rollouts.jsonl`
    """
    opened = RunDir.open(run)
    text = "".join(map(json_line, opened.read_rollouts())) if rollouts else _csv(opened.metrics())
    if out is None:
        print(text, end="")
    else:
        write_atomic(out, text)
        errors.print(f"wrote {out}", markup=False)


@app.command("import")
def import_run(
    run: Annotated[Path, typer.Argument(help="Run folder. It is not moved or copied.")],
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    as_json: JsonOption = False,
) -> None:
    """Register a run made by `strop train` with the server.

    A run that is still training is followed. Importing a run twice has no effect.

    Example: `strop runs import runs/demo`
    """
    path, folder = RunDir.open(run).path.resolve(), DataFolder.open(data_dir)
    if url := folder.server_url():
        name = Remote(url).call("POST", "/v1/strop/runs/import", {"path": str(path)})["id"]
    else:
        name = _import(path, folder, database_url)
    if as_json:
        print_json({"id": name})
    else:
        output.print(name, markup=False)


def _import(path: Path, folder: DataFolder, database_url: str | None) -> str:
    """Import the run directly while no server is running."""
    try:
        from strop.store.db import open_database
        from strop.store.ingest import Ingester
    except ModuleNotFoundError as error:
        raise server_missing(error) from None
    with folder.lock():
        database = open_database(database_url, folder.path)
        try:
            return Ingester(database, folder.path).import_run(path)
        finally:
            database.close()


def sparkline(values: Sequence[float], width: int) -> str:
    """A sparkline of at most `width` characters; each is the mean of its share of the values."""
    if not values:
        return ""
    count = min(width, len(values))
    shares = [values[i * len(values) // count : (i + 1) * len(values) // count] for i in range(count)]
    means = [sum(share) / len(share) for share in shares]
    low, high = min(means), max(means)
    scale = (len(_BARS) - 1) / (high - low) if high > low else 0
    return "".join(_BARS[round((mean - low) * scale)] for mean in means)


def _facts(run: RunDir) -> dict[str, Json]:
    status, metrics = run.status(), run.metrics()
    state = status.get("state", RunState.STARTING)
    if RunState(state).active and not run.locked():
        state = "interrupted"
    rewards = [line["reward"] for line in metrics if "reward" in line]
    validation = [line["validation/reward"] for line in metrics if "validation/reward" in line]
    return {
        "run": str(run.path),
        "name": run.config().name,
        "state": state,
        "step": status.get("step", 0),
        "total_steps": status.get("total_steps"),
        "message": status.get("message"),
        "updated_at": status.get("updated_at"),
        "reward": rewards[-1] if rewards else None,
        "validation": validation[-1] if validation else None,
        "rewards": rewards,
    }


def _metrics_table(metrics: dict[str, Json]) -> Table:
    table = Table(box=None, show_header=False)
    for name, value in metrics.items():
        table.add_row(name, f"{value:.6g}")
    return table


def _checkpoint_table(status: dict[str, Json]) -> Table:
    table = Table("checkpoint", "size", "validation", "", box=None)
    for entry in status.get("checkpoints", []):
        marks = [name for name in ("best", "latest") if status.get(name) == entry["step"]]
        size = f"{entry['size'] / 2**20:.1f} MiB"
        table.add_row(entry["path"], size, _number(entry["validation_reward"]), ", ".join(marks))
    return table


def _csv(metrics: Sequence[dict[str, Json]]) -> str:
    names = list(dict.fromkeys(name for line in metrics for name in line))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(metrics)
    return text.getvalue()


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
