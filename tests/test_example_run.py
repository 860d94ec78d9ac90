"""The example of the README, with the real model: base, training, and held-out rows."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from statistics import fmean

import pytest

from strop.store.rundir import RunDir

EXAMPLE = Path(__file__).parents[1] / "examples" / "json-extraction"


def strop(*arguments: str) -> str:
    command = [sys.executable, "-m", "strop", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=3000).stdout


@pytest.mark.slow
def test_json_extraction_learns_what_its_readme_says(tmp_path: Path) -> None:
    strop("train", str(EXAMPLE / "config.toml"), "--run-dir", str(tmp_path / "run"))
    metrics = RunDir.open(tmp_path / "run").metrics()
    rewards = [line["reward"] for line in metrics if "reward" in line]
    assert 0.05 < rewards[0] < 0.4
    assert fmean(rewards[-5:]) >= 0.9

    held_out = ("--data", str(EXAMPLE / "heldout.jsonl"), "--rewards", str(EXAMPLE / "config.toml"))
    document = json.loads(strop("eval", str(tmp_path / "run"), *held_out, "--against", "smollm2-135m", "--json"))
    base, trained = (model["metrics"] for model in document["models"])
    assert base["pass@1"] < 0.3
    assert trained["pass@1"] >= 0.8
    assert document["comparison"]["better"] > 10 * document["comparison"]["worse"]
