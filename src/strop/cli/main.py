"""The `strop` command and its error handling."""

from __future__ import annotations

import sys

import typer

from strop import __version__
from strop.cli import data, evaluate, keys, models, presets, runs, serve, train
from strop.cli.console import errors
from strop.errors import StropError

app = typer.Typer(
    name="strop",
    help="Reinforcement fine-tuning of open models on your own machine.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    """Reinforcement fine-tuning of open models on your own machine."""


app.command()(train.train)
app.command()(train.resume)
app.command("eval")(evaluate.evaluate)
app.command()(models.chat)
app.command()(models.export)
app.command()(serve.serve)
app.command()(presets.presets)
app.add_typer(keys.app, name="keys")
app.add_typer(runs.app, name="runs")
app.add_typer(models.app, name="models")
app.add_typer(data.app, name="data")


def main() -> None:
    """Run the command line. A StropError prints one message without a traceback and exits with code 1."""
    try:
        app()
    except StropError as error:
        errors.print(f"[bold red]error[/] {_escape(error.message)}", highlight=False, soft_wrap=True)
        sys.exit(1)


def _escape(text: str) -> str:
    return text.replace("[", r"\[")
