"""`python -m strop.worker train RUN`: the process that the command line, a server or a cluster starts.

`evaluate FOLDER` runs the evaluation described by the spec.json in a folder.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path
from types import FrameType

from strop.errors import StropError
from strop.worker.evaluation import evaluate_folder
from strop.worker.parent import end_with
from strop.worker.quiet import quiet_libraries
from strop.worker.training import train_run


class StopRequest:
    """The first SIGINT or SIGTERM requests a checkpoint and a pause, the second ends the process immediately.

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
    parser.add_argument("command", choices=["train", "evaluate"])
    parser.add_argument("path", type=Path, help="run folder or evaluation folder")
    parser.add_argument("--parent", type=int, help="id of the parent process; end when it ends")
    parser.add_argument("--token", type=int, help="fencing token of the folder; do not work if a newer token exists")
    arguments = parser.parse_args()
    if arguments.parent is not None:
        end_with(arguments.parent)
    quiet_libraries()
    try:
        return _run(arguments)
    except StropError as error:
        print(error.message, file=sys.stderr)
        return 1


def _run(arguments: argparse.Namespace) -> int:
    stop = StopRequest(patient=arguments.token is not None)
    if arguments.command == "evaluate":
        return evaluate_folder(arguments.path, lambda: stop.made, arguments.token)
    return train_run(arguments.path, lambda: stop.made, arguments.token)


if __name__ == "__main__":
    sys.exit(main())
