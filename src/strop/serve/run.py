"""`serve_models`: the models of a process behind its socket."""

from __future__ import annotations

import asyncio
import traceback
from pathlib import Path

from strop.serve.app import create_app
from strop.serve.engine import EngineSettings, ModelHost
from strop.serve.server import SocketServer


def serve_models(socket: Path, settings: EngineSettings, parent: int | None) -> int:
    """Answer requests until SIGTERM, or until the process `parent`, which started this one, has ended.

    Returns an exit status: 1 after an error that no request caused. ServerError where no socket
    can be made.
    """
    return asyncio.run(_serve(socket, settings, parent))


async def _serve(socket: Path, settings: EngineSettings, parent: int | None) -> int:
    loop = asyncio.get_running_loop()

    def fail(error: Exception) -> None:
        traceback.print_exception(error)
        loop.call_soon_threadsafe(server.end, 1)

    host = ModelHost(settings, fail, lambda line: print(line, flush=True))
    server = SocketServer(create_app(host), socket, parent)
    try:
        return await server.run_until_ended()
    finally:
        host.close()
