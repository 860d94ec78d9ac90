"""`strop models`, `strop chat` and `strop export`."""

from __future__ import annotations

import asyncio
import sys
from itertools import takewhile
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from strop.cli.console import JsonOption, output, print_json, say
from strop.errors import ModelError
from strop.policy.catalogue import CATALOGUE, local_folder
from strop.types import Rollout, SamplingParams, StopReason

app = typer.Typer(help="List and download models.", no_args_is_help=True)

ModelArgument = Annotated[str, typer.Argument(help="Catalogue name, Hugging Face id, folder, checkpoint, or run.")]


@app.command("list")
def list_models(as_json: JsonOption = False) -> None:
    """List the model catalogue. Any other Hugging Face id or folder works too.

    Example: `strop models list`
    """
    entries = [
        {
            "name": entry.name,
            "repository": entry.repository,
            "parameters_billion": entry.parameters,
            "lora_gb": round(entry.memory_gb("lora"), 1),
            "full_gb": round(entry.memory_gb("full"), 1),
            "licence": entry.licence,
            "summary": entry.summary,
            "here": local_folder(entry.name) is not None,
        }
        for entry in CATALOGUE.values()
    ]
    if as_json:
        print_json(entries)
        return
    table = Table(box=None, caption="LoRA and full: training memory without activations", caption_justify="left")
    table.add_column("name", no_wrap=True)
    for column in ("size", "LoRA", "full"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("here")
    table.add_column("")
    for entry in entries:
        numbers = (f"{entry['parameters_billion']} B", f"{entry['lora_gb']} GB", f"{entry['full_gb']} GB")
        table.add_row(str(entry["name"]), *numbers, "yes" if entry["here"] else "", str(entry["summary"]))
    output.print(table)


@app.command()
def pull(name: Annotated[str, typer.Argument(help="Catalogue name or Hugging Face id.")]) -> None:
    """Download a model to this machine.

    Example: `strop models pull smollm2-135m`
    """
    from strop.policy.fetch import resolve
    from strop.worker.quiet import quiet_libraries

    quiet_libraries()
    print(resolve(name, say))


def chat(
    model: ModelArgument,
    message: Annotated[
        str | None, typer.Option("--message", "-m", help="Send this message, print the completion and exit.")
    ] = None,
    system: Annotated[str | None, typer.Option(help="System message.")] = None,
    temperature: Annotated[float, typer.Option(min=0, max=2, help="0 takes the likeliest token.")] = 0.7,
    max_tokens: Annotated[int, typer.Option(min=1, help="Max tokens per completion.")] = 512,
    seed: Annotated[int, typer.Option(help="Sampling seed.")] = 0,
) -> None:
    """Chat with a model. An empty line or Ctrl-D exits; `/new` starts a new conversation.

    Example: `strop chat smollm2-135m -m "Name three colours."`
    """
    from strop.worker.quiet import quiet_libraries
    from strop.worker.talk import Talk

    quiet_libraries()
    params = SamplingParams(temperature=temperature, max_tokens=max_tokens, seed=seed)
    talk = Talk(model, system, params, say, lambda piece: print(piece, end="", flush=True))
    say(talk.found.label)
    questions = iter((message,)) if message is not None else iter(_question, "")
    for first in questions:
        if first != "/new":
            ended = asyncio.run(talk.converse(first, takewhile(lambda text: text != "/new", questions)))
            _explain(ended)


def export(
    checkpoint: ModelArgument,
    merge: Annotated[Path, typer.Option(help="Output folder for fp32 weights with the adapter merged in.")],
) -> None:
    """Export a trained model with merged weights, for tools without adapter support.

    A checkpoint loads directly in peft (LoRA) or transformers (full training).

    Example: `strop export runs/demo --merge my-model`
    """
    from strop.policy.checkpoint import export_merged
    from strop.worker.models import find_model
    from strop.worker.quiet import quiet_libraries

    quiet_libraries()
    if merge.exists() and any(merge.iterdir()):
        raise ModelError(f"{merge} is not empty; choose another folder")
    found = find_model(checkpoint, say)
    say(f"merging {found.label}")
    export_merged(found.source, found.label, merge)
    print(merge)


def _question() -> str:
    try:
        return input("> " if sys.stdin.isatty() else "").strip()
    except EOFError:
        return ""


def _explain(rollout: Rollout) -> None:
    """Say why a conversation ended, where the person did not end it."""
    if rollout.failure is not None:
        raise ModelError(rollout.failure.message)
    if rollout.stop_reason is StopReason.CONTEXT:
        say("The conversation is longer than the model's context. A new one starts now.")
