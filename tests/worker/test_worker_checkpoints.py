"""Checkpoints of a training process: all that it needs to go on, and what keeps them from disk."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from train_cases import config, sample

from models import save_tiny_model
from strop.config import RunConfig
from strop.data.order import DataOrder
from strop.errors import RunError
from strop.policy.prepare import prepare
from strop.store.rundir import RunDir
from strop.train.grpo import GrpoLearner
from strop.worker.checkpoints import TrainingCheckpoints, checkpoint_store

SAMPLES = [sample((10, 11), [[20, 21, 22], [30, 31]], [1.0, -1.0])]


def settings(folder: Path, method: str) -> RunConfig:
    if not (folder / "model").exists():
        save_tiny_model("llama", folder / "model")
    return config(method=method).model_copy(update={"model": str(folder / "model"), "device": "cpu"})


def checkpoints(folder: Path, method: str = "full", source: Path | None = None, rows: int = 12) -> TrainingCheckpoints:
    """Those of a run in `folder`, with a model as it starts, or as a checkpoint has it."""
    made = settings(folder, method)
    run = RunDir(folder / "run") if (folder / "run").exists() else RunDir.create(folder / "run", made)
    policy, reference = prepare(made, source, lambda line: None)
    learner = GrpoLearner(policy, reference, made)
    order = DataOrder(rows, made.train.batch_size, made.seed, "print")
    return TrainingCheckpoints(run, made, checkpoint_store(run, made), learner, order)


def learner_of(made: TrainingCheckpoints) -> GrpoLearner:
    assert isinstance(made.learner, GrpoLearner)
    return made.learner


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """No file may grow beyond the size: a full disk, for this process only."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_checkpoint_says_what_it_is(tmp_path: Path) -> None:
    made = checkpoints(tmp_path, "lora")
    made.save(3, 0.5)
    (saved,) = made.store.list()
    assert {name: saved.facts[name] for name in ("step", "method", "format", "validation_reward", "model")} == {
        "step": 3,
        "method": "lora",
        "format": "HuggingFace",
        "validation_reward": 0.5,
        "model": str(tmp_path / "model"),
    }
    assert {
        "adapter_model.safetensors",
        "adapter_config.json",
        "tokenizer.json",
        "trainer_state.pt",
        "learner_state.pt",
    } <= saved.files.keys()
    assert torch.load(made.run.order_file(3), weights_only=True) == made.order.state(3)
    assert "checkpoint of step 3 saved" in made.run.training_log.read_text()


def test_the_best_reward_is_that_of_the_checkpoints(tmp_path: Path) -> None:
    made = checkpoints(tmp_path, "lora")
    assert made.best_reward is None
    made.save(1, None)
    assert made.best_reward is None
    made.save(2, -0.5)
    made.save(3, -0.75)
    assert made.best_reward == -0.5


@pytest.mark.parametrize("method", ["lora", "full"])
def test_what_is_restored_goes_on_to_the_bit(method: str, tmp_path: Path) -> None:
    first = checkpoints(tmp_path, method)
    first.learner.update(SAMPLES, 1e-3)
    torch.manual_seed(5)
    first.save(3, None)
    drawn = torch.rand(3)
    (saved,) = first.store.list()
    second = checkpoints(tmp_path, method, saved.path)
    second.restore(saved)
    assert torch.equal(torch.rand(3), drawn)
    for _ in range(2):
        metrics = [each.learner.update(SAMPLES, 1e-3).metrics for each in (first, second)]
        assert metrics[0] == metrics[1]
    weights = [learner_of(each).optimizer.weights() for each in (first, second)]
    assert weights[0].keys() == weights[1].keys()
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_a_checkpoint_of_other_data_is_refused(tmp_path: Path) -> None:
    made = checkpoints(tmp_path)
    made.save(3, None)
    (saved,) = made.store.list()
    with pytest.raises(RunError, match="row_count is 12, expected 13"):
        checkpoints(tmp_path, source=saved.path, rows=13).restore(saved)


@pytest.mark.parametrize(
    ("size", "library"), [(100_000, "Error while serializing"), (400_000, "enforce fail|PytorchStreamWriter")]
)
def test_a_full_disk_is_named_with_the_room_that_is_left(size: int, library: str, tmp_path: Path) -> None:
    # The weights of the model have 250 kB, the state of the optimizer has 520 kB.
    made = checkpoints(tmp_path)
    made.learner.update(SAMPLES, 1e-3)
    made.save(1, None)
    with (
        largest_file(size),
        pytest.raises(OSError, match=rf"step-000002 \(\d+ MiB free\).*{library}"),
    ):
        made.save(2, None)
    assert [path.name for path in made.run.checkpoints.iterdir()] == ["step-000001"]
    made.save(2, None)
    assert [checkpoint.step for checkpoint in made.store.list()] == [1, 2]
