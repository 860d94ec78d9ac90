"""Stands in for `python -m strop.worker train`: the same files, locks and signals, but no model.

    python trainer.py PLAN RUN [--token N]

PLAN is a JSON file: `steps`, `save_every`, `step_s`, and `ends`, what becomes of the first process,
of the second, and so on: {"step": 3, "how": "kill"}, or "hang", or "fail" with the `status` to
leave. A run's file `launches` has a line for each process that got the lock.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from strop.store.checkpoints import CheckpointStore
from strop.store.files import append_line
from strop.store.rundir import RunDir, RunState

stop_wanted = False


def main(plan_file: Path, folder: Path, token: int | None) -> int:
    signal.signal(signal.SIGTERM, want_stop)
    plan = json.loads(plan_file.read_text())
    run = RunDir.open(folder)
    with run.lock(token):
        append_line(folder / "launches", f"{os.getpid()} {token}\n")
        number = len((folder / "launches").read_text().splitlines())
        ends = plan.get("ends", [])
        return train(run, plan, ends[number - 1] if number <= len(ends) else {})


def want_stop(*_: object) -> None:
    global stop_wanted
    stop_wanted = True


def train(run: RunDir, plan: dict[str, Any], end: dict[str, Any]) -> int:
    config = run.config()
    store = CheckpointStore(run.checkpoints, run.checkpoint_status_file, config.train.keep)
    checkpoint = store.newest_valid(run.log)
    done = checkpoint.step if checkpoint else 0
    run.forget_after(done if checkpoint else -1)
    store.sweep(done if checkpoint else -1)
    run.set_status(RunState.RUNNING, step=done, total_steps=plan["steps"])
    for step in range(done + 1, plan["steps"] + 1):
        if end.get("step") == step and (code := finish(run, end)) is not None:
            return code
        time.sleep(plan.get("step_s", 0.0))
        metrics = metrics_of(config.seed, step)
        run.write_rollouts(step, [{"step": step, "row": "r", "line": 1, "sample": 0, "reward": metrics["reward"]}])
        run.append_metrics(step, metrics)
        run.set_status(RunState.RUNNING, step=step)
        stopping = stop_wanted and step < plan["steps"]
        if stopping or step % plan.get("save_every", 2) == 0 or step == plan["steps"]:
            time.sleep(plan.get("save_s", 0.0))
            store.save(step, {"validation_reward": None}, partial(save, metrics))
        if stopping:
            run.set_status(RunState.PAUSED, message="paused; resume the job")
            return 0
    run.set_status(RunState.SUCCEEDED)
    return 0


def metrics_of(seed: int, step: int) -> dict[str, float]:
    """Numbers that depend on nothing else."""
    digest = hashlib.sha256(f"{seed} {step}".encode()).digest()
    return {"reward": digest[0] / 256, "response_length": float(digest[1]), "rollouts_errored": 0.0, "time/train": 0.1}


def save(metrics: dict[str, float], folder: Path) -> None:
    (folder / "weights.json").write_text(json.dumps(metrics))


def finish(run: RunDir, end: dict[str, Any]) -> int | None:
    if end["how"] == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if end["how"] == "hang":
        time.sleep(600)
    run.set_status(RunState.FAILED, **end["status"])
    return 1


if __name__ == "__main__":
    number = int(sys.argv[4]) if len(sys.argv) > 4 else None
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2]), number))
