"""What a run trains and what it is held against, fresh and resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from torch import Tensor

from models import packed_logprobs, random_ids, sample, save_tiny_model, stir_adapters, tiny_lora_policy
from strop.config import RunConfig, parse_config
from strop.errors import ModelError
from strop.policy.checkpoint import save_weights
from strop.policy.model import Policy, fast_dtype
from strop.policy.prepare import AdapterReference, FrozenReference, prepare

CPU = torch.device("cpu")
GROUP = sample(random_ids(7, 1), [random_ids(9, 2), random_ids(4, 3)])
# Policies are prepared in the machine's fast type. The same weights in it twice, and against fp32:
NATIVE = fast_dtype(CPU) == torch.bfloat16
CLOSE, ROUNDED = (0.05, 0.3) if NATIVE else (1e-4, 1e-4)


def run_config(model: Path, method: str = "lora", **tables: Any) -> RunConfig:
    return parse_config(
        {
            "name": "tiny",
            "model": str(model),
            "device": "cpu",
            "data": {"train": "rows.jsonl"},
            "rewards": [{"name": "score", "source": "reward.py:grade"}],
            "lora": {"r": 4, "alpha": 8.0},
            **tables,
            "train": {"method": method, **tables.get("train", {})},
        }
    )


def silent(line: str) -> None:
    """Say nothing."""


def logprobs(policy: Policy) -> Tensor:
    with torch.no_grad():
        return packed_logprobs(policy, [GROUP])


def change(policy: Policy, size: float = 0.1) -> None:
    """Stands for training: every trained weight moves."""
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for weight in policy.trainable():
            weight.add_((size * torch.randn(weight.shape, generator=generator)).to(weight.dtype))
    policy.refresh()


def adapter_folder(folder: Path, kind: str = "llama") -> Path:
    """A saved adapter that is not zero, beside its base."""
    save_weights(tiny_lora_policy(kind, folder / "base"), folder / "adapter")
    return folder / "adapter"


def test_a_fresh_adapter_changes_nothing(tmp_path: Path) -> None:
    policy, reference = prepare(run_config(save_tiny_model("llama", tmp_path)), None, silent)
    assert isinstance(policy.model, PeftModel)
    assert policy.base.dtype == fast_dtype(CPU)
    assert {weight.dtype for weight in policy.trainable()} == {torch.float32}
    with policy.model.disable_adapter():
        base = logprobs(policy)
    assert torch.equal(logprobs(policy), base)
    assert isinstance(reference, AdapterReference)


@pytest.mark.parametrize("kind", ["llama", "gemma3", "qwen3_moe"])
def test_the_reference_of_an_adapter_is_the_model_without_it(tmp_path: Path, kind: str) -> None:
    policy, reference = prepare(run_config(save_tiny_model(kind, tmp_path)), None, silent)
    assert reference is not None
    start = logprobs(policy)
    change(policy)
    moved = logprobs(policy)
    assert float((moved - start).abs().max()) > 0.05
    with reference.scoring() as frozen:
        torch.testing.assert_close(logprobs(frozen), start, atol=CLOSE, rtol=0)
    assert torch.equal(logprobs(policy), moved)
    assert all(weight.requires_grad for weight in policy.trainable())


def test_the_seed_fixes_the_adapter(tmp_path: Path) -> None:
    folder = save_tiny_model("llama", tmp_path)
    made = [prepare(run_config(folder, seed=seed), None, silent)[0].trainable() for seed in (1, 1, 2)]
    assert all(torch.equal(a, b) for a, b in zip(made[0], made[1], strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(made[0], made[2], strict=True))


def test_rank_scale_and_targets_are_those_of_the_configuration(tmp_path: Path) -> None:
    config = run_config(save_tiny_model("llama", tmp_path), lora={"r": 3, "alpha": 12.0, "targets": ["q_proj"]})
    policy, _ = prepare(config, None, silent)
    names = [name for name, weight in policy.model.named_parameters() if weight.requires_grad]
    assert len(names) == 4 and all("q_proj" in name for name in names)
    layer = policy.base.model.layers[0].self_attn.q_proj
    assert layer.scaling["default"] == 4.0
    assert layer.lora_A["default"].weight.shape == (3, 48)


def test_an_adapter_on_embeddings_that_are_the_head_too_is_refused(tmp_path: Path) -> None:
    config = run_config(save_tiny_model("llama", tmp_path), lora={"targets": ["q_proj", "embed_tokens"]})
    with pytest.raises(ModelError, match=r"model\.embed_tokens shares its weights with the output head") as caught:
        prepare(config, None, silent)
    assert caught.value.param == "lora.targets"


@pytest.mark.parametrize("targets", [["q_prj"], ["q_proj", "q_prj"], ["layers.0.mlp.up_proj", "q_prj"]])
def test_a_target_that_the_model_does_not_have_is_named(tmp_path: Path, targets: list[str]) -> None:
    config = run_config(save_tiny_model("llama", tmp_path), lora={"targets": targets})
    with pytest.raises(ModelError, match="q_prj") as caught:
        prepare(config, None, silent)
    assert caught.value.param == "lora.targets"
    assert "the linear layers are down_proj, gate_proj, k_proj, o_proj, q_proj, up_proj, v_proj" in caught.value.message


def test_experts_are_adapted_by_the_names_of_their_layers(tmp_path: Path) -> None:
    config = run_config(save_tiny_model("qwen3_moe", tmp_path), lora={"targets": ["gate_proj", "up_proj", "v_proj"]})
    policy, _ = prepare(config, None, silent)
    names = [name for name, weight in policy.model.named_parameters() if weight.requires_grad]
    assert any("experts" in name for name in names) and any("v_proj" in name for name in names)


def test_all_linear_leaves_experts_and_router_frozen(tmp_path: Path) -> None:
    policy, _ = prepare(run_config(save_tiny_model("qwen3_moe", tmp_path)), None, silent)
    adapted = {
        name.split(".lora_")[0].rpartition(".")[2] for name, w in policy.model.named_parameters() if w.requires_grad
    }
    assert adapted == {"q_proj", "k_proj", "v_proj", "o_proj"}


def test_without_kl_there_is_no_reference(tmp_path: Path) -> None:
    folder = save_tiny_model("llama", tmp_path)
    for method in ("lora", "full"):
        policy, reference = prepare(run_config(folder, method, train={"kl_coefficient": 0.0}), None, silent)
        assert reference is None
        assert policy.trainable()


@pytest.mark.parametrize("method", ["lora", "full"])
@pytest.mark.parametrize("wanted", [True, False])
def test_recomputation_is_that_of_the_configuration(tmp_path: Path, method: str, wanted: bool) -> None:
    config = run_config(save_tiny_model("llama", tmp_path), method, train={"gradient_checkpointing": wanted})
    assert prepare(config, None, silent)[0].recompute is wanted


def test_an_adapter_resumes_from_a_checkpoint(tmp_path: Path) -> None:
    config = run_config(save_tiny_model("llama", tmp_path / "base"))
    policy, _ = prepare(config, None, silent)
    start = logprobs(policy)
    change(policy)
    save_weights(policy, tmp_path / "checkpoint")
    resumed, reference = prepare(config, tmp_path / "checkpoint", silent)
    for again, before in zip(resumed.trainable(), policy.trainable(), strict=True):
        assert torch.equal(again, before)
    torch.testing.assert_close(logprobs(resumed), logprobs(policy), atol=CLOSE, rtol=0)
    assert reference is not None
    with reference.scoring() as frozen:
        torch.testing.assert_close(logprobs(frozen), start, atol=CLOSE, rtol=0)


@pytest.mark.parametrize(("kind", "layers"), [("llama", 7), ("gemma3", 7), ("qwen3_moe", 4)])
def test_training_goes_on_with_a_copy_of_an_adapter_and_holds_it_against_the_original(
    tmp_path: Path, kind: str, layers: int
) -> None:
    source = adapter_folder(tmp_path, kind)
    policy, reference = prepare(run_config(source), None, silent)
    assert isinstance(policy.model, PeftModel) and reference is not None
    start = logprobs(policy)
    with policy.model.disable_adapter():
        assert float((logprobs(policy) - start).abs().max()) > 0.05
    with reference.scoring() as frozen:
        torch.testing.assert_close(logprobs(frozen), start, atol=CLOSE, rtol=0)
    trained = len(policy.trainable())
    change(policy)
    moved = logprobs(policy)
    assert float((moved - start).abs().max()) > 0.05
    with reference.scoring() as frozen:
        torch.testing.assert_close(logprobs(frozen), start, atol=CLOSE, rtol=0)
    assert torch.equal(logprobs(policy), moved)
    assert len(policy.trainable()) == trained == 2 * 2 * layers


def test_only_the_copy_of_an_adapter_is_trained_and_saved(tmp_path: Path) -> None:
    policy, _ = prepare(run_config(adapter_folder(tmp_path)), None, silent)
    names = [name for name, weight in policy.model.named_parameters() if weight.requires_grad]
    assert names and all(".default." in name for name in names)
    save_weights(policy, tmp_path / "saved")
    assert not (tmp_path / "saved" / "start").exists()
    assert (tmp_path / "saved" / "adapter_model.safetensors").is_file()


def test_a_run_on_an_adapter_resumes_with_the_first_adapter_as_reference(tmp_path: Path) -> None:
    config = run_config(adapter_folder(tmp_path))
    policy, _ = prepare(config, None, silent)
    start = logprobs(policy)
    change(policy)
    save_weights(policy, tmp_path / "checkpoint")
    resumed, reference = prepare(config, tmp_path / "checkpoint", silent)
    torch.testing.assert_close(logprobs(resumed), logprobs(policy), atol=CLOSE, rtol=0)
    assert reference is not None
    with reference.scoring() as frozen:
        torch.testing.assert_close(logprobs(frozen), start, atol=CLOSE, rtol=0)


def test_the_reference_gives_the_policy_back_after_an_error(tmp_path: Path) -> None:
    policy, reference = prepare(run_config(adapter_folder(tmp_path)), None, silent)
    change(policy)
    moved = logprobs(policy)
    assert reference is not None
    with pytest.raises(KeyboardInterrupt), reference.scoring():
        raise KeyboardInterrupt
    assert torch.equal(logprobs(policy), moved)


def test_full_training_has_every_weight_in_fp32_and_a_frozen_reference(tmp_path: Path) -> None:
    policy, reference = prepare(run_config(save_tiny_model("qwen2", tmp_path), "full"), None, silent)
    assert len(policy.trainable()) == len(list(policy.model.parameters()))
    assert {weight.dtype for weight in policy.trainable()} == {torch.float32}
    assert isinstance(reference, FrozenReference)
    start = logprobs(policy)
    change(policy)
    with reference.scoring() as frozen:
        assert frozen.base.dtype == fast_dtype(CPU)
        assert frozen.trainable() == []
        torch.testing.assert_close(logprobs(frozen), start, atol=ROUNDED, rtol=0)
    assert float((logprobs(policy) - start).abs().max()) > 2 * ROUNDED


def test_full_training_resumes_from_a_checkpoint_against_the_first_weights(tmp_path: Path) -> None:
    config = run_config(save_tiny_model("qwen2", tmp_path / "base"), "full")
    policy, _ = prepare(config, None, silent)
    start = logprobs(policy)
    change(policy)
    save_weights(policy, tmp_path / "checkpoint")
    resumed, reference = prepare(config, tmp_path / "checkpoint", silent)
    torch.testing.assert_close(logprobs(resumed), logprobs(policy), atol=1e-4, rtol=0)
    assert len(resumed.trainable()) == len(policy.trainable())
    assert reference is not None
    with reference.scoring() as frozen:
        torch.testing.assert_close(logprobs(frozen), start, atol=ROUNDED, rtol=0)


def test_full_training_of_an_adapter_starts_from_the_sum(tmp_path: Path) -> None:
    source = adapter_folder(tmp_path)
    adapted = tiny_lora_policy("llama", tmp_path / "base")
    policy, _ = prepare(run_config(source, "full"), None, silent)
    assert not isinstance(policy.model, PeftModel)
    torch.testing.assert_close(logprobs(policy), logprobs(adapted), atol=1e-4, rtol=0)
    assert all(weight.requires_grad for weight in policy.model.parameters())


def test_an_adapter_over_a_base_that_changed_its_adapters_is_saved_as_it_is_now(tmp_path: Path) -> None:
    policy, _ = prepare(run_config(save_tiny_model("llama", tmp_path / "base")), None, silent)
    stir_adapters(policy, seed=3)
    save_weights(policy, tmp_path / "saved")
    again, _ = prepare(run_config(tmp_path / "saved"), None, silent)
    torch.testing.assert_close(logprobs(again), logprobs(policy), atol=CLOSE, rtol=0)
