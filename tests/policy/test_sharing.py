"""Adapters that share the weights of one base: the same answers, the weights once."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from models import SUPPORTED, TinyModels, random_ids, save_tiny_adapter, tiny_lora_policy
from strop.errors import ModelError
from strop.policy.attention import PackedLayout
from strop.policy.checkpoint import save_weights
from strop.policy.engine import Engine
from strop.policy.model import Policy, attach, load_policy
from strop.types import SamplingParams

CPU = torch.device("cpu")


@torch.inference_mode()
def logits(policy: Policy, prompt: list[int]) -> Tensor:
    layout = PackedLayout([len(prompt)], (), (), CPU)
    return policy.logits(policy.hidden(torch.tensor([prompt]), layout))


@pytest.mark.parametrize("kind", SUPPORTED)
def test_an_attached_adapter_gives_the_logits_of_the_adapter_loaded_alone(
    tiny: TinyModels, tmp_path: Path, kind: str
) -> None:
    folder, prompt = tiny.folder(kind), random_ids(12, 1)
    adapter = save_tiny_adapter(folder, tmp_path, seed=1)
    base = load_policy(str(folder), kind, CPU, torch.float32)
    before = logits(base, prompt)
    attached = attach(base, str(adapter), "adapter")
    alone = load_policy(str(adapter), "adapter", CPU, torch.float32)
    torch.testing.assert_close(logits(attached, prompt), logits(alone, prompt), atol=1e-5, rtol=1e-5)
    assert not torch.allclose(logits(attached, prompt), before, atol=1e-2)
    assert torch.equal(logits(base, prompt), before)


@pytest.mark.parametrize("kind", ["llama", "qwen3_moe"])
def test_the_weights_of_the_base_are_in_memory_once(tiny: TinyModels, tmp_path: Path, kind: str) -> None:
    folder, prompt = tiny.folder(kind), random_ids(5, 1)
    base = load_policy(str(folder), kind, CPU, torch.float32)
    logits(base, prompt)
    packed = base.frozen.packed_bytes
    attached = [attach(base, str(save_tiny_adapter(folder, tmp_path / str(seed), seed)), "adapter") for seed in (1, 2)]
    for policy in attached:
        logits(policy, prompt)
        own = {tensor.data_ptr() for tensor in base.model.parameters()}
        shared = [tensor for name, tensor in policy.model.named_parameters() if "lora_" not in name]
        assert {tensor.data_ptr() for tensor in shared} == own
    assert base.frozen.packed_bytes == packed
    storages = {tensor.untyped_storage().data_ptr() for tensor in base.model.parameters()}
    assert base.frozen.matrix([base.head]).weight.untyped_storage().data_ptr() in storages


def test_engines_of_adapters_and_base_step_in_turn_without_touching_each_other(
    tiny: TinyModels, tmp_path: Path
) -> None:
    folder = tiny.folder("llama")
    base = load_policy(str(folder), "llama", CPU, torch.float32)
    first = attach(base, str(save_tiny_adapter(folder, tmp_path / "1", 1)), "first")
    second = attach(base, str(save_tiny_adapter(folder, tmp_path / "2", 2, ("q_proj", "down_proj"))), "second")
    params = SamplingParams(1.0, 16, seed=3)

    def alone(policy: Policy) -> list[list[int]]:
        engine = Engine(policy, 4)
        request = engine.submit(random_ids(9, 1), 3, params)
        while engine.busy:
            engine.step()
        return request.ids

    expected = [alone(policy) for policy in (base, first, second)]
    engines = [Engine(policy, 4) for policy in (base, first, second)]
    requests = [engine.submit(random_ids(9, 1), 3, params) for engine in engines]
    while any(engine.busy for engine in engines):
        for engine in engines:
            if engine.busy:
                engine.step()
    assert [request.ids for request in requests] == expected
    assert len({str(ids) for ids in expected}) == 3


def test_an_adapter_of_another_model_is_refused_by_name(tiny: TinyModels, tmp_path: Path) -> None:
    policy = tiny_lora_policy("qwen2", tmp_path / "base")
    save_weights(policy, tmp_path / "adapter")
    base = load_policy(str(tiny.folder("llama")), "llama", CPU, torch.float32)
    prompt = random_ids(6, 1)
    before = logits(base, prompt)
    with pytest.raises(ModelError, match=r"other: the adapter in .* does not fit llama"):
        attach(base, str(tmp_path / "adapter"), "other")
    assert torch.equal(logits(base, prompt), before)
