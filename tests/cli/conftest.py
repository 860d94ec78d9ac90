"""A folder with a tiny model, rows, a reward and a configuration, and the command to run there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from models import save_tiny_model

Strop = Callable[..., subprocess.CompletedProcess[str]]

CONFIG = """
name = "vowels"
model = "model"

[data]
train = "rows.jsonl"
validation = "held_out.jsonl"

[[rewards]]
name = "vowels"
source = "reward.py:grade"

[sampling]
max_prompt_tokens = 64
max_completion_tokens = 8

[train]
batch_size = 2
samples_per_prompt = 4
learning_rate = 1e-3
max_steps = 3
save_every = 2
eval_every = 3

[eval]
samples = 2
temperature = 1.0
"""
REWARD = """
def grade(sample, item):
    text = sample.output_text
    return {"vowels": sum(letter in "aeiou" for letter in text) / (len(text) + 1), "short": 0.1 * (len(text) < 20)}
"""


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a user has before the first run."""
    folder = tmp_path_factory.mktemp("project")
    save_tiny_model("llama", folder / "model")
    for name, words in (("rows", "one two three four five six"), ("held_out", "red green blue")):
        lines = [json.dumps({"prompt": f"Say {word}."}) + "\n" for word in words.split()]
        (folder / f"{name}.jsonl").write_text("".join(lines))
    (folder / "config.toml").write_text(CONFIG)
    (folder / "reward.py").write_text(REWARD)
    return folder


@pytest.fixture(scope="session")
def strop(project: Path) -> Strop:
    """Run a command in the project folder, as a user would."""

    def run(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "strop", *arguments],
            cwd=project,
            env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "160"},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    return run


@pytest.fixture(scope="session")
def finished(strop: Strop, project: Path) -> Path:
    """A run that has been trained to its end, by its path relative to the project."""
    done = strop("train", "config.toml", "--run-dir", "runs/finished")
    assert done.returncode == 0, done.stderr
    return Path("runs/finished")
