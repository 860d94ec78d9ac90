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

from strop.config import DataConfig, RunConfig, parse_config
from strop.jobs.job import NewJob
from strop.store.datafolder import DataFolder


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


class NoCheck:
    """Finds nothing wrong with any file, at once."""

    def __init__(self, data: DataConfig, env: Mapping[str, str]) -> None:
        pass

    def result(self) -> dict[str, int]:
        """Nothing was counted."""
        return {}

    def close(self) -> None:
        """Nothing is held."""


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
