"""`strop serve`: the server, in the foreground."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from strop.cli.console import output, say
from strop.cli.options import DatabaseUrl, DataDir
from strop.cli.remote import server_missing


def serve(
    host: Annotated[
        str, typer.Option(help="Address to listen on. Any non-loopback address requires an API key.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on. 0 picks a free port.")] = 8100,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    concurrency: Annotated[int, typer.Option(min=1, help="Max concurrent jobs.")] = 1,
    max_concurrent: Annotated[int, typer.Option(min=1, help="Max batch size of one deployment.")] = 16,
    memory: Annotated[
        float | None, typer.Option(metavar="GIB", help="Memory limit for all deployments together.")
    ] = None,
    idle_minutes: Annotated[
        float, typer.Option(min=0, help="Minutes of idle time before a deployment is unloaded. 0 disables unloading.")
    ] = 30.0,
    stalled_minutes: Annotated[
        float, typer.Option(min=0, help="Minutes without output before a process is restarted. 0 disables that.")
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
    output.print(f"strop is running at {url}", markup=False)
    say(f"OPENAI_BASE_URL={url}/v1")
    say("press Ctrl-C to stop the server; running jobs continue")
