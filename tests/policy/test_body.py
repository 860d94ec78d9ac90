"""The body of a model: fused where that gives the model's own hidden states, and only there."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor

from models import (
    FUSED,
    SUPPORTED,
    TinyModels,
    packed_logprobs,
    plain_logprobs,
    plain_model,
    random_ids,
    sample,
    save_tiny_model,
    stir_adapters,
    tiny_lora_policy,
    tiny_policy,
)
from strop.config import LoraConfig as LoraSettings
from strop.policy.attention import Layout, PackedLayout
from strop.policy.body import Body, FusedBody, ModuleBody, build_body
from strop.policy.lora import use_fast_layers
from strop.policy.model import Policy, load_policy
from strop.policy.prepare import adapt

CPU = torch.device("cpu")
GROUP = sample(random_ids(7, 1), [random_ids(9, 2), random_ids(4, 3)])


def hidden(body: Body, seed: int = 4, dtype: torch.dtype = torch.float32) -> Tensor:
    """What a body makes of two prompts and three completions."""
    layout: Layout = PackedLayout([5, 8], [6, 1, 9], [0, 1, 1], CPU)
    return body.hidden(torch.tensor([random_ids(29, seed)]), layout)


def kind_of(policy: Policy) -> type[object]:
    return type(build_body(policy.base, policy.name))


@pytest.mark.parametrize("kind", SUPPORTED)
def test_common_blocks_are_fused_and_others_run_as_they_are(tiny: TinyModels, kind: str) -> None:
    assert kind_of(tiny.policy(kind)) is (FusedBody if kind in FUSED else ModuleBody)


@pytest.mark.parametrize("kind", FUSED)
def test_adapted_blocks_are_fused_too(tmp_path: Path, kind: str) -> None:
    assert kind_of(tiny_lora_policy(kind, tmp_path)) is FusedBody


def test_mistral_is_fused_with_its_window(tmp_path: Path) -> None:
    policy = tiny_policy("mistral", tmp_path, sliding_window=4)
    assert kind_of(policy) is FusedBody
    prompt, completion = random_ids(9, 5), random_ids(8, 6)
    found = packed_logprobs(policy, [sample(prompt, [completion])])[0]
    wanted = plain_logprobs(plain_model(tmp_path), prompt, completion)
    torch.testing.assert_close(found, wanted, atol=2e-5, rtol=0)


@pytest.mark.parametrize("kind", FUSED)
def test_fused_and_plain_hidden_states_agree_in_fp32(tiny: TinyModels, kind: str) -> None:
    model = tiny.policy(kind).base
    with torch.no_grad():
        torch.testing.assert_close(hidden(build_body(model, kind)), hidden(ModuleBody(model)), atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", FUSED)
def test_fused_and_plain_hidden_states_are_close_in_bf16(tmp_path: Path, kind: str) -> None:
    model = tiny_policy(kind, tmp_path, torch.bfloat16).base
    with torch.no_grad():
        fused, plain = hidden(build_body(model, kind)), hidden(ModuleBody(model))
    assert fused.dtype == plain.dtype == torch.bfloat16
    assert float((fused - plain).float().norm() / plain.float().norm()) < 0.03


@pytest.mark.parametrize("kind", FUSED)
def test_adapters_do_the_same_in_both_forms_with_and_without_gradient(tmp_path: Path, kind: str) -> None:
    policy = tiny_lora_policy(kind, tmp_path)
    fused, plain = build_body(policy.base, kind), ModuleBody(policy.base)
    expected = hidden(plain)
    torch.testing.assert_close(hidden(fused), expected, atol=2e-5, rtol=1e-5)
    with torch.no_grad():
        torch.testing.assert_close(hidden(fused), expected, atol=2e-5, rtol=1e-5)
    with policy.model.disable_adapter(), torch.no_grad():
        assert float((hidden(fused) - expected).abs().max()) > 0.1
        torch.testing.assert_close(hidden(fused), hidden(plain), atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", FUSED)
def test_adapters_get_the_same_gradients_in_both_forms(tmp_path: Path, kind: str) -> None:
    policy = tiny_lora_policy(kind, tmp_path)
    gradients = []
    for body in (build_body(policy.base, kind), ModuleBody(policy.base)):
        slope = torch.randn(1, 29, policy.base.config.hidden_size, generator=torch.Generator().manual_seed(7))
        hidden(body).backward(slope)
        gradients.append([weight.grad for weight in policy.trainable()])
        for weight in policy.trainable():
            weight.grad = None
    for fused, plain in zip(*gradients, strict=True):
        assert fused is not None and plain is not None
        assert float((fused - plain).abs().max()) < 1e-4 * float(plain.abs().max())


@pytest.mark.parametrize("targets", [("v_proj",), ("q_proj", "k_proj"), ("up_proj", "o_proj"), ("down_proj",)])
def test_adapters_on_some_of_the_layers_that_share_an_input(tmp_path: Path, targets: tuple[str, ...]) -> None:
    base = tiny_policy("qwen2", tmp_path)
    policy = adapt(base, LoraSettings(r=3, alpha=6.0, targets=targets), 1, None, str(tmp_path))
    stir_adapters(policy)
    body = build_body(policy.base, "qwen2")
    assert type(body) is FusedBody
    expected = hidden(ModuleBody(policy.base))
    torch.testing.assert_close(hidden(body), expected, atol=2e-5, rtol=1e-5)
    with torch.no_grad():
        torch.testing.assert_close(hidden(body), expected, atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", SUPPORTED)
@pytest.mark.parametrize("method", ["lora", "full"])
def test_what_training_changed_is_what_is_sampled_from(tmp_path: Path, kind: str, method: str) -> None:
    policy = tiny_lora_policy(kind, tmp_path) if method == "lora" else tiny_policy(kind, tmp_path)
    if method == "full":
        policy.model.requires_grad_(True)
    with torch.inference_mode():  # the caches fill up
        before = packed_logprobs(policy, [GROUP])
        policy.logits(torch.zeros(1, policy.head.shape[1]))
    generator = torch.Generator().manual_seed(8)
    with torch.no_grad():
        for weight in policy.trainable():
            weight.add_(0.1 * torch.randn(weight.shape, generator=generator))
    policy.refresh()
    with torch.inference_mode():
        sampled = packed_logprobs(policy, [GROUP])
        head = policy.logits(torch.eye(policy.head.shape[1]))
    trained = packed_logprobs(policy, [GROUP])
    expected = ModuleBody(policy.base)
    layout = PackedLayout([16], (), (), CPU)
    ids = torch.tensor([[*GROUP.prompt_ids, *GROUP.segments[0].token_ids_T]])
    logits = policy.base.lm_head(expected.hidden(ids, layout))[0, 6:-1].log_softmax(-1)
    wanted = logits.gather(1, ids[0, 7:, None])[:, 0].detach()
    torch.testing.assert_close(trained[0].detach(), wanted, atol=5e-5, rtol=0)
    torch.testing.assert_close(sampled[0], wanted, atol=5e-5, rtol=0)
    torch.testing.assert_close(head, policy.head.detach().T.contiguous(), atol=1e-6, rtol=0)
    assert float((sampled - before).abs().max()) > 0.01


class Counting(PackedLayout):
    """A layout of one sequence that counts calls of attention."""

    calls = 0

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float, window: int | None) -> Tensor:
        self.calls += 1
        return super().attend(layer, query, key, value, scale, window)


@pytest.mark.parametrize("kind", SUPPORTED)
@pytest.mark.parametrize("method", ["lora", "full"])
def test_recomputing_activations_gives_the_same_gradients(tmp_path: Path, kind: str, method: str) -> None:
    policy = tiny_lora_policy(kind, tmp_path) if method == "lora" else tiny_policy(kind, tmp_path)
    if method == "full":
        policy.model.requires_grad_(True)
    gradients = []
    for recompute in (False, True):
        body = build_body(policy.base, kind, recompute)
        layout = Counting([29], (), (), CPU)
        body.hidden(torch.tensor([random_ids(29, 4)]), layout).square().sum().backward()
        assert layout.calls == (4 if recompute else 2)  # two layers, and again in the backward pass
        gradients.append([weight.grad for weight in policy.trainable()])
        for weight in policy.trainable():
            weight.grad = None
    for kept, recomputed in zip(*gradients, strict=True):
        if kept is not None or recomputed is not None:
            torch.testing.assert_close(recomputed, kept, atol=0, rtol=1e-5)


@pytest.mark.parametrize("kind", ["llama", "gemma3"])
def test_nothing_is_recomputed_without_gradients(tmp_path: Path, kind: str) -> None:
    body = build_body(tiny_policy(kind, tmp_path).base, kind, recompute=True)
    layout = Counting([9], (), (), CPU)
    with torch.no_grad():
        body.hidden(torch.tensor([random_ids(9, 4)]), layout)
    assert layout.calls == 2


def test_a_body_built_while_sampling_can_be_trained(tmp_path: Path) -> None:
    policy = tiny_lora_policy("llama", tmp_path)
    fresh = adapt(tiny_policy("llama", tmp_path), LoraSettings(r=4), 1, None, str(tmp_path))
    with torch.inference_mode():
        packed_logprobs(fresh, [GROUP])
    packed_logprobs(fresh, [GROUP]).sum().backward()
    assert all(weight.grad is not None for weight in fresh.trainable())
    assert len(fresh.trainable()) == len(policy.trainable())


def test_an_adapter_on_the_embeddings_is_not_passed_over(tmp_path: Path) -> None:
    base = tiny_policy("llama", tmp_path, tie_word_embeddings=False)
    policy = adapt(base, LoraSettings(r=3, targets=("embed_tokens", "q_proj")), 1, None, str(tmp_path))
    packed_logprobs(policy, [GROUP]).sum().backward()
    embedding = [weight for name, weight in policy.model.named_parameters() if "lora_embedding_A" in name]
    assert embedding and all(weight.grad is not None and weight.grad.any() for weight in embedding)


def test_an_adapter_that_is_more_than_plain_lora_is_not_passed_over(tmp_path: Path) -> None:
    policy = tiny_policy("llama", tmp_path)
    config = LoraConfig(r=2, target_modules=["q_proj"], use_dora=True, task_type="CAUSAL_LM")
    model = get_peft_model(policy.model, use_fast_layers(config)).eval()
    assert type(build_body(model.get_base_model(), "llama")) is ModuleBody


def test_a_scale_that_shows_at_far_positions_only_is_not_passed_over(tmp_path: Path) -> None:
    rope = {
        "rope_type": "yarn",
        "rope_theta": 10000.0,
        "factor": 8.0,
        "original_max_position_embeddings": 64,
        "llama_4_scaling_beta": 0.5,
    }
    policy = tiny_policy("ministral3", tmp_path, rope_parameters=rope)
    prompt, completion = random_ids(150, 10), random_ids(50, 11)
    found = packed_logprobs(policy, [sample(prompt, [completion])])[0]
    torch.testing.assert_close(found, plain_logprobs(plain_model(tmp_path), prompt, completion), atol=5e-5, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_layers_without_rotation_are_not_passed_over(tmp_path: Path, dtype: torch.dtype) -> None:
    # Attention adds so little to the hidden states that they are the same within the rounding of bf16.
    folder = save_tiny_model("smollm3", tmp_path, no_rope_layers=[1, 0])
    policy = load_policy(str(folder), "smollm3", CPU, dtype)
    with torch.no_grad():
        for layer in policy.base.model.layers:
            layer.self_attn.o_proj.weight.mul_(0.01)
    assert isinstance(build_body(policy.base, "smollm3"), ModuleBody)
