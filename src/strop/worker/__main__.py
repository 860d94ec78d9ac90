"""`python -m strop.worker train RUN`: what the command line, a server or a cluster starts.

`evaluate FOLDER` does what the spec.json in a folder says. `serve SOCKET` answers chat requests that
come over a socket: see strop.serve.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import sys
from pathlib import Path
from types import FrameType

from strop.errors import StropError
from strop.serve.engine import EngineSettings
from strop.serve.listener import serve_engine
from strop.worker.evaluation import evaluate_folder
from strop.worker.quiet import quiet_libraries
from strop.worker.training import train_run

_PR_SET_PDEATHSIG = 1


class StopRequest:
    """The first SIGINT or SIGTERM asks for a checkpoint and a pause, the second ends at once.

    But for a server, which may be started anew in between and then asks again: it ends a process
    at once by SIGKILL.
    """

    def __init__(self, patient: bool = False) -> None:
        self.made = False
        self._patient = patient
        signal.signal(signal.SIGINT, self._receive)
        signal.signal(signal.SIGTERM, self._receive)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self.made and not self._patient:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        self.made = True


def main() -> int:
    parser = argparse.ArgumentParser(prog="strop.worker", description=__doc__)
    parser.add_argument("command", choices=["train", "evaluate", "serve"])
    parser.add_argument("path", type=Path, help="run folder, folder of an evaluation, or socket")
    parser.add_argument("--parent", type=int, help="end together with this process, the one that started it")
    parser.add_argument("--token", type=int, help="refuse to work if a newer token was given out for the folder")
    serving = parser.add_argument_group("serve")
    serving.add_argument("--max-concurrent", type=int, default=EngineSettings.max_concurrent, help="of one model")
    serving.add_argument("--max-queue", type=int, default=EngineSettings.max_queue, help="of one model")
    serving.add_argument("--memory", type=float, metavar="GIB", help="for weights, keys and values")
    serving.add_argument("--device", default=EngineSettings.device, help="auto, cpu or cuda")
    arguments = parser.parse_args()
    if arguments.parent is not None:
        _end_with(arguments.parent)
    quiet_libraries()
    try:
        return _serve(arguments) if arguments.command == "serve" else _train(arguments)
    except StropError as error:
        print(error.message, file=sys.stderr)
        return 1


def _train(arguments: argparse.Namespace) -> int:
    stop = StopRequest(patient=arguments.token is not None)
    if arguments.command == "evaluate":
        return evaluate_folder(arguments.path, lambda: stop.made, arguments.token)
    return train_run(arguments.path, lambda: stop.made, arguments.token)


def _serve(arguments: argparse.Namespace) -> int:
    memory = None if arguments.memory is None else int(arguments.memory * 2**30)
    settings = EngineSettings(arguments.max_concurrent, arguments.max_queue, memory, arguments.device)
    return serve_engine(arguments.path, settings, arguments.parent)


def _end_with(parent: int) -> None:
    """Have the kernel kill this process when its parent ends, where the kernel can."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the call
        sys.exit(1)


if __name__ == "__main__":
    sys.exit(main())
