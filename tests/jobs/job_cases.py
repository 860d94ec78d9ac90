"""Helpers: jobs made by hand."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from strop.config import RunConfig, parse_config
from strop.jobs.checking import Checking
from strop.jobs.job import JobQueue, NewJob
from strop.jobs.kind import Kind, RunIngester, Tools
from strop.jobs.launcher import Launcher, Process
from strop.jobs.supervisor import Supervisor
from strop.jobs.training import Training
from strop.store.datafolder import DataFolder
from strop.store.files import write_json


def config(**train: Any) -> RunConfig:
    """A configuration around these settings of `[train]`."""
    return parse_config(
        {
            "name": "case",
            "model": "tiny",
            "device": "cpu",
            "data": {"train": "files/file-1"},
            "rewards": [{"name": "score", "source": "rewards/rw_1/1/reward.py:score"}],
            "train": train,
        }
    )


def new_job(name: str = "case", model: str = "smollm2-135m", **request: Any) -> NewJob:
    """What a client asks for."""
    return NewJob(name=name, model=model, config=config(), request=request, training_file="file-1")


class NoIngester:
    """Takes run folders in by name only; `seen` says which, and how often."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()

    def import_run(self, path: Path) -> str:
        """The id that a run's folder stands for here."""
        self.seen[path.name] += 1
        return f"run_{path.name}"

    def refresh(self, run_id: str) -> bool:
        """Nothing new, ever."""
        self.seen[run_id] += 1
        return False


@dataclass(frozen=True)
class Named:
    """A secret's name."""

    name: str


class FixedSecrets:
    """Secrets that are there from the start."""

    def __init__(self, values: dict[str, str] | None = None) -> None:
        self._values = values or {}

    def names(self) -> list[Named]:
        """As the secret store has them."""
        return [Named(name) for name in self._values]

    def reveal(self, names: Iterable[str]) -> dict[str, str]:
        """Values of known names."""
        return {name: self._values[name] for name in names}


class CheckedAtOnce:
    """A launcher of checks that find nothing wrong with any file, and need no process."""

    def launch(self, folder: Path, env: Mapping[str, str], token: int) -> Process:
        """Leave a result; the process is over."""
        write_json(folder / "result.json", {"training": 0, "validation": 0})
        return Process(0, 0.0)

    def find(self, folder: Path, known: Process | None = None) -> Process | None:
        """None lives."""
        return None

    def poll(self, process: Process) -> int | None:
        """It has ended well."""
        return 0

    def stop(self, process: Process, now: bool) -> None:
        """It has ended."""


def supervisor(
    queue: JobQueue,
    folder: DataFolder,
    launcher: Launcher,
    *,
    ingester: RunIngester | None = None,
    secrets: dict[str, str] | None = None,
    check: Launcher | None = None,
    concurrency: int = 1,
    **options: Any,
) -> Supervisor:
    """What runs the jobs of a queue; files are not read unless `check` does it."""
    tools = Tools(queue.database, folder, FixedSecrets(secrets), ingester or NoIngester())
    kinds: dict[str, Kind] = {
        "training": Training(tools, launcher),
        "validation": Checking(tools, check or CheckedAtOnce()),
    }
    return Supervisor(tools, kinds, {"training": concurrency}, clock=queue.clock, **options)


def make_inputs(folder: DataFolder, rows: int = 4) -> None:
    """The files that the configuration of `new_job` names."""
    lines = [json.dumps({"prompt": f"Say {number}."}) + "\n" for number in range(rows)]
    (folder.files / "file-1").write_text("".join(lines))
    (folder.files / "file-2").write_text(json.dumps({"prompt": "Say nothing."}) + "\n")


def stub_command(folder: DataFolder, **plan: Any) -> list[str]:
    """The command of a trainer without a model that goes by a plan: see trainer.py."""
    file = folder.path / "plan.json"
    file.write_text(json.dumps({"steps": 4, **plan}))
    return [sys.executable, str(Path(__file__).with_name("trainer.py")), str(file)]


def until(condition: Callable[[], Any], act: Callable[[], None] | None = None, patience_s: float = 120.0) -> Any:
    """Wait until a condition holds, doing something in between; what it gave."""
    deadline = time.monotonic() + patience_s
    while not (found := condition()):
        assert time.monotonic() < deadline
        if act:
            act()
        time.sleep(0.01)
    return found
