"""Training on from a checkpoint: the new run starts from its very weights."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from job_cases import new_job

from models import packed_logprobs, sample, tiny_lora_policy, tiny_policy
from strop.config import anchored
from strop.errors import CheckpointError, ConfigError
from strop.jobs.job import Job, JobQueue, NewJob, clone
from strop.jobs.kept_weights import keep_weights
from strop.policy.checkpoint import save_weights
from strop.policy.model import Policy
from strop.policy.prepare import prepare
from strop.store.checkpoints import Checkpoint, CheckpointStore, read_checkpoint
from strop.store.datafolder import DataFolder
from strop.store.db import open_database

NEARLY = 0.1
"""In nats: the forked run may compute in bf16."""


@pytest.fixture
def folder(tmp_path: Path) -> DataFolder:
    return DataFolder.open(tmp_path / "data")


@pytest.fixture
def job(folder: DataFolder) -> Job:
    database = open_database(None, folder.path)
    made = JobQueue(database).create(new_job(model="Qwen/tiny", suffix="first"))
    database.close()
    return made


def fork(
    job: Job,
    checkpoint: Path,
    checkpoint_id: str,
    folder: DataFolder,
    changes: Mapping[str, Any] | None = None,
    name: str | None = None,
) -> NewJob:
    """The job that trains on from one of another job's checkpoints, as the API makes it."""
    new = clone(job, changes, name)
    step = read_checkpoint(checkpoint).step
    kept = keep_weights(checkpoint, folder.path / "forks" / checkpoint_id)
    config = new.config.model_copy(update={"model": folder.stored(kept)})
    return replace(new, config=config, forked_from=checkpoint_id, model=f"{job.model_name}:ckpt-step-{step}")


RESUMING = {"trainer_state.pt", "learner_state.pt"}


def saved(policy: Policy, folder: DataFolder, job: Job) -> Checkpoint:
    """A checkpoint in the run folder of a job."""
    run = folder.found(job.folder)
    store = CheckpointStore(run / "checkpoints", run / "checkpoint_status.json", keep=1)

    def write(target: Path) -> None:
        save_weights(policy, target)
        for name in RESUMING:
            (target / name).write_bytes(b"of the optimizer")

    return store.save(4, {}, write)


def gap(one: Policy, other: Policy) -> float:
    """The largest difference between their log-probabilities of some completions."""
    prompts = [sample([5, 9, 30], [[7, 40, 12], [200, 6]])]
    with torch.no_grad():
        said = [packed_logprobs(policy, prompts) for policy in (one, other)]
    return (said[0] - said[1]).abs().max().item()


@pytest.mark.parametrize("parent", ["lora", "full"])
@pytest.mark.parametrize("method", ["lora", "full"])
def test_a_fork_starts_from_the_weights_of_the_checkpoint(
    parent: str, method: str, folder: DataFolder, job: Job, tmp_path: Path
) -> None:
    policy = (tiny_lora_policy if parent == "lora" else tiny_policy)("llama", tmp_path / "model")
    checkpoint = saved(policy, folder, job)
    new = fork(job, checkpoint.path, "ftckpt_1", folder, {"train": {"method": method}})
    assert new.forked_from == "ftckpt_1"
    assert new.model == f"{job.model_name}:ckpt-step-4"
    # The other run may drop its checkpoint.
    shutil.rmtree(checkpoint.path)
    forked, reference = prepare(anchored(new.config, folder.path), None, print)
    assert gap(forked, policy) < NEARLY
    assert reference is not None
    with torch.no_grad():
        for parameter in forked.trainable():
            parameter.add_(0.2)
    forked.refresh()
    assert gap(forked, policy) > 3 * NEARLY
    # What the new run is held against is the checkpoint, not the model that the other run began with.
    with reference.scoring() as start:
        assert gap(start, policy) < NEARLY


def test_the_model_of_a_fork_is_named_after_the_first_base(folder: DataFolder, job: Job, tmp_path: Path) -> None:
    checkpoint = saved(tiny_policy("llama", tmp_path / "model"), folder, job)
    new = fork(job, checkpoint.path, "ftckpt_1", folder)
    database = open_database(None, folder.path)
    assert JobQueue(database).create(new).model_name.startswith("ft:tiny:strop:first:")
    database.close()


def test_kept_weights_take_no_room_and_leave_the_optimizer_out(folder: DataFolder, job: Job, tmp_path: Path) -> None:
    checkpoint = saved(tiny_policy("llama", tmp_path / "model"), folder, job)
    kept = folder.found(fork(job, checkpoint.path, "ftckpt_1", folder).config.model)
    names = {file.name for file in kept.iterdir()}
    assert names == checkpoint.files.keys() - RESUMING
    assert os.path.samefile(kept / "model.safetensors", checkpoint.path / "model.safetensors")
    # A second fork shares them.
    assert fork(job, checkpoint.path, "ftckpt_1", folder).config.model == str(kept.relative_to(folder.path))
    assert [path.name for path in kept.parent.iterdir()] == ["ftckpt_1"]


def test_a_damaged_checkpoint_is_not_forked(folder: DataFolder, job: Job, tmp_path: Path) -> None:
    checkpoint = saved(tiny_policy("llama", tmp_path / "model"), folder, job)
    with open(checkpoint.path / "model.safetensors", "r+b") as file:
        file.seek(-4, os.SEEK_END)
        file.write(b"????")
    with pytest.raises(CheckpointError, match="its content does not match"):
        fork(job, checkpoint.path, "ftckpt_1", folder)
    assert not (folder.path / "forks" / "ftckpt_1").exists()


def test_a_wrong_change_is_refused_before_anything_is_kept(folder: DataFolder, job: Job, tmp_path: Path) -> None:
    checkpoint = saved(tiny_policy("llama", tmp_path / "model"), folder, job)
    with pytest.raises(ConfigError, match="did you mean"):
        fork(job, checkpoint.path, "ftckpt_1", folder, {"train": {"learning_rat": 1}})
    assert not (folder.path / "forks").exists()
