"""The list of models through OpenAI's client: what is in it, in which order, and what can be deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import OpenAI
from openai.types import Model

from fake_deployments import FakeDeployments
from job_requests import become, create, fake_model, train
from served import connected, services
from strop.jobs.task import TaskStatus
from strop.services.container import Services


@pytest.fixture
def deployed() -> FakeDeployments:
    return FakeDeployments()


@pytest.fixture
def given(tmp_path: Path, deployed: FakeDeployments, monkeypatch: pytest.MonkeyPatch) -> Iterator[Services]:
    """One model of the catalogue is on this machine."""
    monkeypatch.setenv("STROP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    folder = fake_model(tmp_path / "cache" / "models" / "smollm2-135m")
    (folder / "model.safetensors").write_bytes(b"")
    with services(tmp_path / "data", deployments=deployed) as given:
        yield given


@pytest.fixture
def client(given: Services) -> Iterator[OpenAI]:
    with connected(given) as client:
        yield client


def finished(client: OpenAI, given: Services, steps: list[int], **fields: Any) -> str:
    """Name of the model of a job that is done."""
    job = create(client, "smollm2-135m", **fields)
    train(given, job.id, steps)
    name = given.jobs.get(job.id).model_name
    become(given, job.id, TaskStatus.SUCCEEDED, fine_tuned_model=name, finished_at=5.0)
    return name


def test_models_of_this_machine_come_first_then_deployments_then_trained_ones(
    client: OpenAI, given: Services, deployed: FakeDeployments
) -> None:
    asyncio.run(deployed.create("/models/mine", "mine"))
    asyncio.run(deployed.create("smollm2-135m"))
    older, newer = finished(client, given, [1, 2]), finished(client, given, [3], suffix="b")
    waiting = create(client, "smollm2-135m")
    train(given, waiting.id, [1])
    paused = given.jobs.get(waiting.id).model_name
    asyncio.run(deployed.create(newer))
    found = client.models.list().data
    assert [model.id for model in found] == [
        "smollm2-135m",
        newer,
        "mine",
        f"{paused}:ckpt-step-1",
        f"{newer}:ckpt-step-3",
        older,
        f"{older}:ckpt-step-2",
        f"{older}:ckpt-step-1",
    ]
    kinds = [model.kind for model in found]  # type: ignore[attr-defined]
    assert kinds == ["base", "deployment", "deployment", *["checkpoint"] * 2, "fine-tuned", *["checkpoint"] * 2]
    for model in found:
        Model.model_validate(model.to_dict())
        assert set(Model.model_fields) <= model.model_fields_set


def test_a_model_of_each_kind_is_retrieved(client: OpenAI, given: Services, deployed: FakeDeployments) -> None:
    asyncio.run(deployed.create("/models/mine", "some/name with space"))
    tuned = finished(client, given, [2])
    assert client.models.retrieve("smollm2-135m").owned_by == "HuggingFaceTB"
    # Names with a slash arrive as %2F.
    assert client.models.retrieve("HuggingFaceTB/SmolLM2-135M-Instruct").id == "HuggingFaceTB/SmolLM2-135M-Instruct"
    assert client.models.retrieve("some/name with space").id == "some/name with space"
    assert client.models.retrieve(tuned).created == 5
    step = client.models.retrieve(f"{tuned}:ckpt-step-2").to_dict()
    assert (step["step"], step["base"], step["kind"]) == (2, "smollm2-135m", "checkpoint")


@pytest.mark.parametrize("name", ["qwen3-0.6b", "nobody/knows", "ft:a:strop::00000000", "gpt-4o"])
def test_what_is_not_here_is_not_found(client: OpenAI, name: str) -> None:
    with pytest.raises(openai.NotFoundError, match=name):
        client.models.retrieve(name)


def test_a_model_of_an_unfinished_job_is_not_there_yet_but_its_checkpoints_are(client: OpenAI, given: Services) -> None:
    job = create(client, "smollm2-135m")
    train(given, job.id, [1])
    name = given.jobs.get(job.id).model_name
    with pytest.raises(openai.NotFoundError, match="not finished"):
        client.models.retrieve(name)
    assert client.models.retrieve(f"{name}:ckpt-step-1").id == f"{name}:ckpt-step-1"


def test_deleting_a_fine_tuned_model_ends_its_deployment_and_keeps_its_run(
    client: OpenAI, given: Services, deployed: FakeDeployments
) -> None:
    tuned = finished(client, given, [1])
    with pytest.raises(openai.NotFoundError, match="not deployed; to delete the model itself, delete its job"):
        client.models.delete(tuned)
    asyncio.run(deployed.create(tuned))
    answer = client.models.delete(tuned)
    assert (answer.id, answer.object, answer.deleted) == (tuned, "model", True)
    assert asyncio.run(deployed.list()) == []
    assert client.models.retrieve(tuned).id == tuned


def test_base_models_are_not_deleted(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="base model"):
        client.models.delete("smollm2-135m")
    with pytest.raises(openai.NotFoundError):
        client.models.delete("nothing")
