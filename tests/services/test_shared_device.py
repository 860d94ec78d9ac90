"""What tasks need of the device, and what a thread hears of the models on it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from job_cases import config, new_job

from served import services
from strop.jobs.evaluations import NewEvaluation
from strop.jobs.plan import Demand, Served
from strop.services.container import Services
from strop.services.shared_device import SharedDevice

WAIT_S = 20


def test_a_training_needs_more_for_full_weights_than_for_an_adapter(tmp_path: Path) -> None:
    with services(tmp_path / "data") as given:
        lora, full = (training(given, method) for method in ("lora", "full"))
        assert full.memory_bytes - lora.memory_bytes == pytest.approx((22 - 2.2) * 0.135e9, rel=1e-3)
        assert lora.memory_bytes > 2.2 * 0.135e9  # with activations


def training(given: Services, method: str) -> Demand:
    changed = config(method=method).model_copy(update={"model": "smollm2-135m"})
    job = given.jobs.create(replace(new_job(method), config=changed))
    return SharedDevice(given).demand(job)


@pytest.mark.parametrize(
    ("model", "demand"),
    [
        ({"kind": "base", "source": "smollm2-135m"}, Demand(270_000_000)),
        ({"kind": "base", "source": "nobody/knows"}, Demand()),
        ({"kind": "remote", "source": "qwen3-0.6b"}, Demand()),
        ({"kind": "deployment", "source": "smollm2-135m"}, Demand(served=True)),
    ],
)
def test_an_evaluation_needs_what_its_model_takes(tmp_path: Path, model: dict[str, str], demand: Demand) -> None:
    with services(tmp_path / "data") as given:
        evaluation = given.evaluations.create(NewEvaluation("case", "model", {"model": model, "data": {}}))
        assert SharedDevice(given).demand(evaluation) == demand


class Deployed:
    """Deployments that hold some memory until room is made."""

    def __init__(self) -> None:
        self.held = 5

    async def served(self) -> Served:
        return Served(self.held)

    async def make_room(self) -> None:
        self.held = 0


def test_a_thread_hears_what_is_held_and_has_room_made_and_never_waits(tmp_path: Path) -> None:
    async def check(given: Services) -> None:
        device = SharedDevice(replace(given, deployments=Deployed()))  # type: ignore[arg-type]
        assert device.served() is None
        device.open()
        assert await heard(device) == Served(5)
        await asyncio.to_thread(device.make_room)
        assert await heard(device) == Served(0)
        device.close()
        assert device.served() is None

    with services(tmp_path / "data") as given:
        asyncio.run(check(given))


async def heard(device: SharedDevice) -> Served:
    """Ask again and again, as a thread does."""
    async with asyncio.timeout(WAIT_S):
        while (found := await asyncio.to_thread(device.served)) is None:
            await asyncio.sleep(0.01)
    return found
