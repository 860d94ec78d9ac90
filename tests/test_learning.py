"""The whole loop learns: on a tiny random model the reward rises to near its highest in seconds."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path
from statistics import fmean

import pytest
import torch

from models import save_tiny_model
from strop.config import Loss, RunConfig, parse_config
from strop.data.order import DataOrder
from strop.envs.single_turn import SingleTurn
from strop.policy.chat import ChatTemplate
from strop.policy.completer import LocalCompleter
from strop.policy.engine import Engine
from strop.policy.prepare import prepare
from strop.policy.sampler import LocalSampler
from strop.rollout import Player
from strop.train.grpo import GrpoLearner
from strop.train.loop import Trainer
from strop.types import Message, Reward, Rollout, Row, StepRecord

VOWELS = "aeiou"


class Vowels:
    """Scores how many vowels an answer has for each of its tokens, up to one."""

    async def score(self, row: Row, rollout: Rollout, seed: int) -> Rollout:
        text = rollout.messages[-1].content
        share = min(sum(letter in VOWELS for letter in text) / rollout.length, 1.0)
        return dataclasses.replace(rollout, reward=Reward(share, {"vowels": share}, {"vowels": 1.0}))


class Kept:
    """Records and checkpoints that stay in memory."""

    best_reward: float | None = None

    def __init__(self) -> None:
        self.records: list[StepRecord] = []

    def record(self, record: StepRecord) -> None:
        self.records.append(record)

    def save(self, step: int, validation_reward: float | None) -> None: ...

    def close(self) -> None: ...


def settings(folder: Path, method: str, loss: Loss, rate: float, steps: int) -> RunConfig:
    return parse_config(
        {
            "name": "learning",
            "model": str(folder),
            "device": "cpu",
            "data": {"train": "unused"},
            "rewards": [{"name": "vowels", "source": "unused.py:unused"}],
            "sampling": {"max_prompt_tokens": 64, "max_completion_tokens": 10},
            "train": {
                "method": method,
                "loss": loss,
                "learning_rate": rate,
                "batch_size": 4,
                "samples_per_prompt": 8,
                "epochs": 100,
                "max_steps": steps,
            },
        }
    )


def rewards(folder: Path, method: str, loss: Loss = "dapo", rate: float = 3e-3, steps: int = 30) -> list[float]:
    """The mean reward of every step."""
    save_tiny_model("llama", folder)
    config = settings(folder, method, loss, rate, steps)
    policy, reference = prepare(config, None, lambda line: None)
    rows = [Row(f"r{n}", n, (Message("user", f"Question {n}"),), (), None, {}) for n in range(4)]
    kept = Kept()
    chat = ChatTemplate(policy.tokenizer, "tiny", {})
    trainer = Trainer(
        config=config,
        rows=rows,
        order=DataOrder(len(rows), config.train.batch_size, config.seed),
        learner=GrpoLearner(policy, reference, config),
        peak_rate=rate,
        player=Player(LocalCompleter(policy, chat, LocalSampler(Engine(policy, 32))), SingleTurn()),
        scorer=Vowels(),
        recorders=[kept],
        checkpoints=kept,
        validate=None,
        prompts_dropped=0,
    )
    asyncio.run(trainer.run(0, lambda: False))
    assert not any(record.metrics["step_skipped"] for record in kept.records[: steps // 2])
    return [record.metrics["reward"] for record in kept.records]


def assert_learnt(curve: list[float]) -> None:
    assert fmean(curve[:3]) < 0.2
    assert fmean(curve[-5:]) > 0.9


@pytest.mark.parametrize("loss", ["dapo", "grpo", "dr_grpo", "cispo", "gspo"])
def test_every_loss_learns(loss: Loss, tmp_path: Path) -> None:
    assert_learnt(rewards(tmp_path, "full", loss))


def test_an_adapter_learns(tmp_path: Path) -> None:
    assert_learnt(rewards(tmp_path, "lora", rate=1e-2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_learning_does_not_depend_on_the_type_that_is_computed_in(
    dtype: torch.dtype, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("strop.train.grpo", "strop.policy.prepare"):
        monkeypatch.setattr(f"{module}.fast_dtype", lambda device: dtype)
    assert_learnt(rewards(tmp_path, "full"))


def test_a_run_with_a_seed_repeats_itself(tmp_path: Path) -> None:
    first, second = (rewards(tmp_path / name, "full", steps=4) for name in ("a", "b"))
    assert first == second
