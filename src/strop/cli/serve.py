"""`strop serve`: the server, in the foreground."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from strop.cli.console import output, say
from strop.cli.options import DatabaseUrl, DataDir
from strop.cli.remote import server_missing


def serve(
    host: Annotated[str, typer.Option(help="Address; any but this machine's own needs a key.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen at; 0 takes a free one.")] = 8100,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    concurrency: Annotated[int, typer.Option(min=1, help="Jobs that run at the same time.")] = 1,
    max_concurrent: Annotated[int, typer.Option(min=1, help="Completions of one deployment decoded together.")] = 16,
    memory: Annotated[float | None, typer.Option(metavar="GIB", help="What all deployments may take.")] = None,
    idle_minutes: Annotated[float, typer.Option(min=0, help="After so long unused they unload; 0: never.")] = 30.0,
    stalled_minutes: Annotated[
        float, typer.Option(min=0, help="A process that writes nothing for so long is started again; 0: never.")
    ] = 30.0,
) -> None:
    """Run the server: jobs, an OpenAI-compatible API, deployments.

    Example: `strop serve --port 8100`
    """
    try:
        from strop.app import Options, Server
    except ModuleNotFoundError as error:
        raise server_missing(error) from None
    # What the server makes is for its user only. Its children need not know the database's password.
    os.umask(0o077)
    os.environ.pop("STROP_DATABASE_URL", None)
    options = Options(
        host, port, data_dir, database_url, concurrency, max_concurrent, memory, idle_minutes, stalled_minutes
    )
    Server(options, _greet).run()


def _greet(url: str) -> None:
    output.print(f"strop answers at {url}", markup=False)
    say(f"OPENAI_BASE_URL={url}/v1")
    say("Ctrl-C stops the server; jobs go on")
