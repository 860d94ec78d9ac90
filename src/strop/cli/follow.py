"""Follow a training process through its run folder: a line per step, a progress bar and the time left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from strop.cli.console import errors
from strop.store.rundir import RunDir, RunState
from strop.types import Json

_POLL_S = 0.2
# Label, metric, format, width.
_COLUMNS = (
    ("step", "step", "d", 5),
    ("reward", "reward", ".3f", 8),
    ("solved", "solve_rate", ".2f", 8),
    ("length", "response_length", ".1f", 8),
    ("loss", "loss", ".4f", 9),
    ("kl", "kl_loss", ".4f", 8),
    ("tokens/s", "tokens_per_second", ".0f", 10),
    ("validation", "validation/reward", ".3f", 12),
)


class Follower:
    """Displays a run while its process works and forwards requests to stop."""

    def __init__(self, run: RunDir, quiet: bool) -> None:
        self._run = run
        self._quiet = quiet
        self._tail = _MetricsTail(run.metrics_file)
        self._seconds: deque[float] = deque(maxlen=10)
        self._asked = 0

    def follow(self, process: subprocess.Popen[bytes]) -> int:
        """Display the run until its process ends. Returns the command's exit code."""
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[left]}"),
            TimeElapsedColumn(),
        )
        handlers = {number: signal.signal(number, self._stopper(process)) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            with Progress(*columns, console=errors, disable=self._quiet or not errors.is_terminal) as bar:
                task = bar.add_task("starting", total=None, left="")
                while process.poll() is None:
                    self._show_steps()
                    status = self._run.status()
                    phase = status.get("phase") or status.get("state", "")
                    total, step = status.get("total_steps"), status.get("step", 0)
                    bar.update(task, description=phase, total=total, completed=step, left=self._left(total, step))
                    time.sleep(_POLL_S)
                self._show_steps()
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
        return self._explain(process.returncode)

    def _stopper(self, process: subprocess.Popen[bytes]) -> Callable[[int, FrameType | None], None]:
        def stop(number: int, frame: FrameType | None) -> None:
            self._asked += 1
            process.send_signal(signal.SIGTERM)
            if self._asked == 1:
                errors.print(
                    "finishing the current step and saving a checkpoint; press Ctrl-C again to stop immediately"
                )

        return stop

    def _show_steps(self) -> None:
        for metrics in self._tail.read():
            self._seconds.append(sum(value for name, value in metrics.items() if name.startswith("time/")))
            if not self._quiet:
                if not self._tail.header_shown:
                    errors.print("".join(f"{label:>{width}}" for label, *_, width in _COLUMNS), style="bold")
                    self._tail.header_shown = True
                errors.print("".join(_cell(metrics, key, form, width) for _, key, form, width in _COLUMNS).rstrip())

    def _left(self, total: int | None, step: int) -> str:
        if not total or not self._seconds:
            return ""
        pace = sum(self._seconds) / len(self._seconds)
        return f"{pace:.1f} s per step, {_clock((total - step) * pace)} left"

    def _explain(self, code: int) -> int:
        """Print how the process ended and what to do next."""
        status = self._run.status()
        path = self._run.path
        match status.get("state"):
            case RunState.SUCCEEDED if code == 0:
                return 0
            case RunState.PAUSED if code == 0:
                errors.print(f"paused after step {status.get('step')}; resume with: strop resume {path}", markup=False)
                return 0
            case RunState.FAILED:
                errors.print(f"failed: {status.get('message')}", markup=False, style="red", soft_wrap=True)
                return 1
        if self._asked:
            errors.print(
                f"stopped immediately; resume from the newest checkpoint with: strop resume {path}", markup=False
            )
            return 128 + signal.SIGINT
        reason = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        errors.print(
            f"the training process ended with {reason}; its output is in {self._run.raw_output}.\n"
            "If the machine ran out of memory, lower train.micro_batch_tokens or sampling.max_concurrent.\n"
            f"Resume from the newest checkpoint with: strop resume {path}",
            markup=False,
            style="red",
        )
        return 1


class _MetricsTail:
    """Yield each new line of metrics.jsonl once. The file may shrink when a run resumes."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._offset = file.stat().st_size if file.exists() else 0
        self.header_shown = False

    def read(self) -> list[dict[str, Json]]:
        if not self._file.exists():
            return []
        with open(self._file, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            self._offset = min(self._offset, size)
            file.seek(self._offset)
            whole, newline, _ = file.read().rpartition(b"\n")
        self._offset += len(whole + newline)
        return [json.loads(line) for line in whole.splitlines()]


def _cell(metrics: Mapping[str, Json], key: str, form: str, width: int) -> str:
    text = format(metrics[key], form) if key in metrics else ""
    return f"{text:>{width}}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
