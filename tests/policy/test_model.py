"""A policy: loading, what it says of itself, and which models are refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from torch import nn
from transformers import AutoConfig, AutoModelForImageTextToText, GenerationConfig

from models import (
    END,
    END_OF_TEXT,
    VOCABULARY,
    TinyModels,
    packed_logprobs,
    plain_logprobs,
    plain_model,
    random_ids,
    sample,
    save_tiny_model,
    save_tokenizer,
    tiny_lora_policy,
    tiny_policy,
)
from strop.errors import ModelError
from strop.policy.attention import PackedLayout
from strop.policy.checkpoint import save_weights
from strop.policy.lora import LoraLinear
from strop.policy.model import fast_dtype, load_policy, pick_device

CPU = torch.device("cpu")


def load(folder: Path, name: str = "my-model") -> Any:
    return load_policy(str(folder), name, CPU, torch.float32)


MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}


@pytest.mark.parametrize(
    ("kind", "settings", "says"),
    [
        ("gemma2", {}, "Gemma2Attention needs softcap in its attention: not supported"),
        ("gpt_oss", {"num_local_experts": 4, "num_experts_per_tok": 2}, "GptOssAttention needs s_aux"),
        ("mamba", {}, "MambaForCausalLM does not let its attention be replaced: not supported"),
        (
            "qwen3_next",
            {**MOE, "layer_types": ["linear_attention", "full_attention"], "shared_expert_intermediate_size": 24},
            "Qwen3NextForCausalLM does not let its attention be replaced: not supported",
        ),
        ("minimax", {}, "layer 1 of MiniMaxForCausalLM is linear_attention: not supported"),
        ("recurrent_gemma", {}, "layer 0 of RecurrentGemmaForCausalLM is linear_attention: not supported"),
        ("gemma2", {"attn_logit_softcapping": None}, "Gemma2ForCausalLM scales or caps its logits: not supported"),
        ("granite", {"logits_scaling": 8.0}, "GraniteForCausalLM scales or caps its logits: not supported"),
        ("cohere", {}, "CohereForCausalLM scales or caps its logits: not supported"),
        ("phi", {}, "the output head of PhiForCausalLM is not a plain matrix: not supported"),
        ("diffllama", {}, "DiffLlamaForCausalLM does not decode with keys and values alone: not supported"),
        (
            "gpt_neo",
            {"num_layers": 2, "attention_types": [[["global", "local"], 1]], "num_heads": 4},
            "the model does not let its attention be replaced: not supported",
        ),
        ("bloom", {}, "BloomForCausalLM does not let its attention be replaced: not supported"),
        ("doge", {}, "DogeForCausalLM"),
        ("llama4_text", {}, "Llama4ForCausalLM"),
    ],
)
def test_a_model_that_would_be_run_wrongly_is_refused_by_name(
    tmp_path: Path, kind: str, settings: dict[str, Any], says: str
) -> None:
    save_tiny_model(kind, tmp_path, **settings)
    with pytest.raises(ModelError, match=says) as caught:
        load(tmp_path)
    assert caught.value.message.startswith("my-model: ")


def test_a_model_for_images_too_is_refused_by_name(tmp_path: Path) -> None:
    small = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    text = {**small, "vocab_size": VOCABULARY, "head_dim": 16, "num_key_value_heads": 1}
    made = AutoConfig.for_model("gemma3", text_config=text, vision_config={**small, "image_size": 28, "patch_size": 14})
    AutoModelForImageTextToText.from_config(made).save_pretrained(tmp_path)
    save_tokenizer(tmp_path)
    with pytest.raises(ModelError, match=r"my-model: Gemma3\w+ takes more than text"):
        load(tmp_path)


def test_latent_attention_with_narrow_values_is_run_as_it_is(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "q_lora_rank": None,
        "kv_lora_rank": 16,
        "qk_rope_head_dim": 8,
        "qk_nope_head_dim": 16,
        "v_head_dim": 12,
        "head_dim": 8,
        "num_key_value_heads": 6,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 24,
        "n_group": 1,
        "topk_group": 1,
        "first_k_dense_replace": 1,
    }
    policy = tiny_policy("deepseek_v3", tmp_path, **settings)
    prompt, completion = random_ids(9, 1), random_ids(12, 2)
    found = packed_logprobs(policy, [sample(prompt, [completion[:3], completion])])[1]
    torch.testing.assert_close(found, plain_logprobs(plain_model(tmp_path), prompt, completion), atol=2e-5, rtol=0)


def test_support_is_checked_without_changing_how_the_model_runs(tiny: TinyModels) -> None:
    policy = tiny.policy("llama")
    assert policy.base.config._attn_implementation == "strop"
    assert not policy.base.training
    assert policy.trainable() == []


@pytest.mark.parametrize(
    ("written", "expected"), [([END, END_OF_TEXT], {END, END_OF_TEXT}), (END_OF_TEXT, {END_OF_TEXT}), (None, {END})]
)
def test_every_end_token_of_the_generation_config_ends_a_turn(
    tmp_path: Path, written: list[int] | int | None, expected: set[int]
) -> None:
    policy = tiny_policy("llama", tmp_path)
    policy.model.generation_config = GenerationConfig(eos_token_id=written)
    assert policy.eos_ids == expected


def test_without_any_configuration_the_tokenizer_ends_a_turn(tmp_path: Path) -> None:
    policy = tiny_policy("llama", tmp_path)
    policy.model.generation_config = None
    policy.model.config.eos_token_id = None
    assert policy.eos_ids == {END}


def test_an_adapted_policy_ends_turns_like_its_base(tmp_path: Path) -> None:
    assert tiny_lora_policy("gemma3", tmp_path).eos_ids == {END, END_OF_TEXT}


def test_the_limit_on_positions_is_that_of_the_configuration(tmp_path: Path) -> None:
    policy = tiny_policy("llama", tmp_path, max_position_embeddings=123)
    assert policy.max_length == 123


def test_positions_that_would_change_the_rotation_of_all_others_are_not_used(tmp_path: Path) -> None:
    rope = {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "short_factor": [1.0] * 8,
        "long_factor": [4.0] * 8,
        "original_max_position_embeddings": 40,
    }
    policy = tiny_policy("llama", tmp_path, rope_parameters=rope, max_position_embeddings=80)
    assert policy.max_length == 40


def test_a_loaded_model_is_frozen_and_in_evaluation_mode(tiny: TinyModels) -> None:
    policy = tiny.policy("qwen3")
    assert not policy.model.training
    assert not any(parameter.requires_grad for parameter in policy.model.parameters())
    assert (policy.name, policy.source) == ("qwen3", str(tiny.folder("qwen3")))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_are_loaded_in_the_type_asked_for(tiny: TinyModels, dtype: torch.dtype) -> None:
    policy = load_policy(str(tiny.folder("llama")), "llama", CPU, dtype)
    assert {parameter.dtype for parameter in policy.model.parameters()} == {dtype}
    assert policy.logits(torch.zeros(1, 48, dtype=dtype)).dtype == dtype


def test_logits_are_those_of_the_models_head(tiny: TinyModels) -> None:
    policy = tiny.policy("qwen2")
    states = torch.randn(5, 96, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(policy.logits(states), states @ policy.base.lm_head.weight.T)


def test_text_of_ids_leaves_special_tokens_out(tiny: TinyModels) -> None:
    policy = tiny.policy("llama")
    ids = policy.tokenizer("<|im_start|>the ä<|im_end|><|endoftext|>", add_special_tokens=False)["input_ids"]
    assert policy.decode(ids) == "the ä"


def damage_weights(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:2000])


def damage_config(folder: Path) -> None:
    (folder / "config.json").write_text("{not json", encoding="utf-8")


def unknown_architecture(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps({"model_type": "no-such-model"}), encoding="utf-8")


def without_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def without_tokenizer(folder: Path) -> None:
    for file in folder.glob("tokenizer*"):
        file.unlink()


@pytest.mark.parametrize(
    "damage", [damage_weights, damage_config, unknown_architecture, without_weights, without_tokenizer]
)
def test_a_folder_that_cannot_be_loaded_is_named(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    save_tiny_model("llama", tmp_path)
    damage(tmp_path)
    with pytest.raises(ModelError) as caught:
        load(tmp_path)
    assert caught.value.message.startswith(f"my-model: cannot be loaded from {tmp_path}: ")
    assert caught.value.param == "model"


def test_an_adapter_folder_is_loaded_over_its_base(tmp_path: Path) -> None:
    policy = tiny_lora_policy("llama", tmp_path / "base")
    save_weights(policy, tmp_path / "adapter")
    loaded = load(tmp_path / "adapter")
    assert isinstance(loaded.model, PeftModel)
    assert isinstance(loaded.base.model.layers[0].self_attn.q_proj, LoraLinear)
    assert loaded.trainable() == []
    assert not loaded.model.training
    ids = torch.tensor([random_ids(9, 3)])
    layout = PackedLayout([9], (), (), CPU)
    with torch.no_grad():
        torch.testing.assert_close(loaded.hidden(ids, layout), policy.hidden(ids, layout))


def test_an_adapter_whose_base_is_gone_says_where_it_was(tmp_path: Path) -> None:
    policy = tiny_lora_policy("llama", tmp_path / "base")
    save_weights(policy, tmp_path / "adapter")
    (tmp_path / "base").rename(tmp_path / "elsewhere")
    with pytest.raises(ModelError, match=f"{tmp_path / 'base'}: no model there"):
        load(tmp_path / "adapter")


def test_trainable_parameters_are_those_that_want_gradients(tmp_path: Path) -> None:
    policy = tiny_lora_policy("llama", tmp_path)
    names = [name for name, parameter in policy.model.named_parameters() if parameter.requires_grad]
    assert len(policy.trainable()) == len(names) == 2 * 2 * 7  # layers, matrices, projections
    assert all("lora_" in name for name in names)


def test_the_device_is_the_cpu_where_that_is_asked_for() -> None:
    assert pick_device("cpu") == CPU


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_gpu_that_is_not_there_is_refused_with_what_to_do() -> None:
    assert pick_device("auto") == CPU
    with pytest.raises(ModelError, match='device = "cuda", but torch sees no GPU; use "auto" or "cpu"'):
        pick_device("cuda")


def test_gpus_compute_in_bf16() -> None:
    assert fast_dtype(torch.device("cuda")) == torch.bfloat16
    assert fast_dtype(CPU) in (torch.bfloat16, torch.float32)


def test_the_head_is_the_output_matrix(tiny: TinyModels) -> None:
    tied, apart = tiny.policy("llama"), tiny.policy("qwen2")
    assert tied.head is tied.base.get_input_embeddings().weight
    assert apart.head is not apart.base.get_input_embeddings().weight
    assert isinstance(apart.head, nn.Parameter)
