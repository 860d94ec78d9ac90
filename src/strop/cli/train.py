"""`strop train` and `strop resume`."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from strop.cli.console import JsonOption, errors, print_json
from strop.cli.follow import Follower
from strop.config import read_config
from strop.errors import RunError
from strop.jobs.process import start_worker
from strop.store.rundir import RunDir, RunState


def train(
    config: Annotated[Path, typer.Argument(help="Configuration file of the run (TOML); see docs/training.md.")],
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override one setting. Can be repeated.")
    ] = None,
    run_dir: Annotated[Path | None, typer.Option(help="Run folder. Default: runs/NAME-DATE-TIME.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Train a model with a configuration file.

    Ctrl-C finishes the current step, saves a checkpoint and pauses the run. A second Ctrl-C stops immediately.

    Example: `strop train examples/json-extraction/config.toml --set train.learning_rate=1e-4`
    """
    settings = read_config(config, overrides or ())
    folder = run_dir or Path("runs") / f"{settings.name}-{datetime.now():%Y%m%d-%H%M%S}"
    run = RunDir.create(folder, settings)
    _work(run, as_json)


def resume(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    as_json: JsonOption = False,
) -> None:
    """Resume a run from its newest valid checkpoint.

    Example: `strop resume runs/json-extraction-20260102-150405`
    """
    opened = RunDir.open(run)
    if opened.status().get("state") == RunState.SUCCEEDED:
        raise RunError(f"{run} is already finished; to train further, start a new run with model set to its checkpoint")
    _work(opened, as_json)


def _work(run: RunDir, as_json: bool) -> None:
    """Run the training process, show its progress and print the next steps."""
    with run.lock():
        pass  # RunError, with its number, if another process trains the run
    errors.print(f"run folder {run.path}", markup=False)
    code = Follower(run, quiet=as_json).follow(start_worker(run.path, parent=os.getpid()))
    status = run.status()
    if as_json:
        metrics = run.metrics()
        print_json({"run": str(run.path), **status, "metrics": metrics[-1] if metrics else {}})
    elif status.get("state") == RunState.SUCCEEDED:
        errors.print(
            f"finished. Next:\n"
            f"  strop runs show {run.path}\n"
            f"  strop eval {run.path} --data HELDOUT.jsonl --rewards {run.config_file} --against {run.config().model}\n"
            f"  strop chat {run.path}\n"
            f"  strop export {run.path} --merge FOLDER",
            markup=False,
            soft_wrap=True,
        )
    raise typer.Exit(code)
