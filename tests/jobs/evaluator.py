"""Stands in for `python -m strop.worker evaluate`: the same files, locks and signals, but no model.

    python evaluator.py PLAN FOLDER [--token N]

PLAN is a JSON file: `rows`, and `ends`, what becomes of the first process, of the second, and so
on: {"after": 3, "how": "kill"}, or "hang", or "fail" with a `message`. The folder's file
`launches` has a line with the variables of each process.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from strop.store.evaldir import EvaluationDir
from strop.store.files import append_line, json_line
from strop.store.rundir import RunState

stop_wanted = False


def main(plan_file: Path, path: Path) -> int:
    signal.signal(signal.SIGTERM, want_stop)
    plan = json.loads(plan_file.read_text())
    folder = EvaluationDir.open(path)
    with folder.lock(int(sys.argv[4]) if len(sys.argv) > 4 else None):
        append_line(path / "launches", json_line({"pid": os.getpid(), "secret": os.environ.get("SOME_TOKEN")}))
        number = len((path / "launches").read_text().splitlines())
        ends = plan.get("ends", [])
        return evaluate(folder, plan["rows"], ends[number - 1] if number <= len(ends) else {})


def want_stop(*_: object) -> None:
    global stop_wanted
    stop_wanted = True


def evaluate(folder: EvaluationDir, rows: int, end: dict[str, Any]) -> int:
    names = [f"row-{number}" for number in range(rows)]
    samples = folder.spec()["config"]["eval"]["samples"]
    done = list(folder.keep_complete(names, samples))
    folder.set_status(RunState.RUNNING, rows_done=len(done), rows_total=rows)
    for number, name in enumerate(names):
        if stop_wanted:
            folder.set_status(RunState.PAUSED)
            return 0
        if end.get("after") == len(done):
            return finish(folder, end)
        if name not in done:
            folder.append([answer(name, number, sample) for sample in range(samples)])
            done.append(name)
            folder.set_status(RunState.RUNNING, rows_done=len(done), rows_total=rows)
    folder.write_metrics({"metrics": {"reward": 0.5}, "report": {"rows": rows}})
    folder.set_status(RunState.SUCCEEDED)
    return 0


def finish(folder: EvaluationDir, end: dict[str, Any]) -> int:
    if end["how"] == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if end["how"] == "fail":
        folder.set_status(RunState.FAILED, message=end["message"])
        return 1
    while end.get("deaf") or not stop_wanted:
        time.sleep(0.01)
    folder.set_status(RunState.PAUSED)
    return 0


def answer(row: str, number: int, sample: int) -> dict[str, Any]:
    reward = float((number + sample) % 2)
    return {
        "row": row,
        "line": number + 1,
        "sample": sample,
        "prompt": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": f"Question {number}?"}],
        "messages": [{"role": "assistant", "content": f"Answer {sample}."}],
        "reward": reward,
        "components": {"exact": reward},
        "weights": {"exact": 1.0},
        "stop_reason": "stop",
        "length": 3,
        "failure": None,
        "logs": "",
        "timing": {},
    }


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
