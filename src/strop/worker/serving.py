"""`python -m strop.worker.serving SOCKET`: the model process of a server. See strop.serve.

A module of its own: the command for training must start without the packages of the server.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from strop.errors import StropError
from strop.serve.engine import EngineSettings
from strop.serve.run import serve_models
from strop.worker.parent import end_with
from strop.worker.quiet import quiet_libraries


def main() -> int:
    parser = argparse.ArgumentParser(prog="strop.worker.serving", description=__doc__)
    parser.add_argument("socket", type=Path)
    parser.add_argument("--parent", type=int, help="end together with this process, the one that started it")
    parser.add_argument("--max-concurrent", type=int, default=EngineSettings.max_concurrent, help="of one model")
    parser.add_argument("--max-queue", type=int, default=EngineSettings.max_queue, help="of one model")
    parser.add_argument("--memory", type=float, metavar="GIB", help="for weights, keys and values")
    parser.add_argument("--device", default=EngineSettings.device, help="auto, cpu or cuda")
    arguments = parser.parse_args()
    if arguments.parent is not None:
        end_with(arguments.parent)
    quiet_libraries()
    memory = None if arguments.memory is None else int(arguments.memory * 2**30)
    settings = EngineSettings(arguments.max_concurrent, arguments.max_queue, memory, arguments.device)
    try:
        return serve_models(arguments.socket, settings, arguments.parent)
    except StropError as error:
        print(error.message, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
