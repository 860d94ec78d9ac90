"""A training run in which every rollout is a conversation of two turns, with a real model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from models import save_tiny_model
from strop.config import parse_config
from strop.store.rollout_lines import read_rollout
from strop.store.rundir import RunDir
from strop.worker.training import train_run

REWARD = "def score(sample, item):\n    return sum(len(step.response) % 5 for step in sample.trajectories)\n"


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    save_tiny_model("llama", tmp_path / "model")
    rows = [
        {"messages": [{"role": "user", "content": f"Question {n}?"}], "metadata": {"user_turns": ["Sure?"]}}
        for n in range(4)
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "reward.py").write_text(REWARD)
    tables = {
        "name": "talks",
        "model": str(tmp_path / "model"),
        "data": {"train": str(tmp_path / "rows.jsonl")},
        "rewards": [{"name": "score", "source": f"{tmp_path / 'reward.py'}:score"}],
        "environment": {"name": "user_turns", "max_turns": 4},
        "sampling": {"max_prompt_tokens": 200, "max_completion_tokens": 60, "stop": list("aeinorst")},
        "train": {"batch_size": 2, "samples_per_prompt": 4, "kl_coefficient": 0.01},
        "lora": {"r": 4},
    }
    return RunDir.create(tmp_path / "run", parse_config(tables))


def test_conversations_are_trained_on_recorded_and_scored_turn_by_turn(run: RunDir) -> None:
    assert train_run(run.path, lambda: False) == 0
    lines = list(run.read_rollouts())
    assert len(lines) == 16
    assert [line["failure"] for line in lines] == [None] * 16
    answered_twice = [read_rollout(line) for line in lines if len(line["turns"]) == 2]
    assert len(answered_twice) > 8  # the others were cut off in their first turn
    for rollout in answered_twice:
        first, second = rollout.turns
        assert [message.content for message in first.observations] == ["Sure?"]
        assert sum(sum(segment.sampled_mask_T) for segment in rollout.segments) == first.length + second.length
    assert {turn["version"] for line in lines if line["step"] == 2 for turn in line["turns"]} == {1}
    trained = [metrics for metrics in run.metrics() if not metrics["step_skipped"]]
    assert trained and all(metrics["grad_norm"] > 0 for metrics in trained)
