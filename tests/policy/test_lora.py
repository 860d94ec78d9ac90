"""LoRA layers, against the plain formula and against PEFT's own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from peft import LoraConfig, get_peft_model
from peft.tuners.lora import Linear
from torch import Tensor, nn

from models import packed_logprobs, random_ids, sample, tiny_lora_policy, tiny_policy
from strop.config import LoraConfig as LoraSettings
from strop.policy.lora import Adapter, LoraLinear, adapted, use_fast_layers
from strop.policy.prepare import adapt

GROUP = sample(random_ids(7, 1), [random_ids(9, 2), random_ids(4, 3)])


def formula(x: Tensor, weight: Tensor, bias: Tensor | None, adapters: Sequence[Adapter]) -> Tensor:
    """y = x Wᵀ + b, plus scale · (x Aᵀ) Bᵀ for each adapter's own columns."""
    parts = [adapter.scale * (x @ adapter.down.T) @ adapter.up.T for adapter in adapters]
    return nn.functional.linear(x, weight, bias) + torch.cat(parts, dim=-1)


@settings(deadline=None, max_examples=40)
@given(
    outputs=st.lists(st.integers(1, 9), min_size=1, max_size=3),
    ranks=st.lists(st.integers(0, 5), min_size=3, max_size=3),
    shape=st.sampled_from([(4,), (2, 3), (1, 1), (2, 1, 3)]),
    with_bias=st.booleans(),
)
def test_output_and_gradients_are_those_of_the_formula(
    outputs: list[int], ranks: list[int], shape: tuple[int, ...], with_bias: bool
) -> None:
    generator = torch.Generator().manual_seed(1)

    def random(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator)

    width = 6
    weight, bias = random(sum(outputs), width), random(sum(outputs)) if with_bias else None
    adapters = [
        Adapter(random(r, width).requires_grad_(), random(n, r).requires_grad_(), 0.5 + index)
        for index, (n, r) in enumerate(zip(outputs, ranks, strict=False))
    ]
    x = random(*shape, width).requires_grad_()
    slope = random(*shape, sum(outputs))
    wanted = [x, *(matrix for adapter in adapters for matrix in (adapter.down, adapter.up))]
    found, expected = adapted(x, weight, bias, adapters), formula(x, weight, bias, adapters)
    torch.testing.assert_close(found, expected)
    gradients = torch.autograd.grad(found, wanted, slope), torch.autograd.grad(expected, wanted, slope)
    for ours, plain in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, plain)


def test_gradients_hold_against_finite_differences() -> None:
    generator = torch.Generator().manual_seed(2)
    x, weight, down, up = (
        torch.randn(*size, generator=generator, dtype=torch.float64) for size in ((3, 5), (4, 5), (2, 5), (4, 2))
    )

    def run(x: Tensor, down: Tensor, up: Tensor) -> Tensor:
        return adapted(x, weight, None, [Adapter(down, up, 1.5)])

    # A and B reach the product through the type of x; gradients of fp32 adapters come back in fp32.
    assert torch.autograd.gradcheck(
        run, (x.requires_grad_(), down.requires_grad_(), up.requires_grad_()), eps=1e-3, atol=1e-4
    )


def test_adapters_over_a_bf16_base_get_fp32_gradients() -> None:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(64, 32, generator=generator)
    weight = torch.randn(16, 32, generator=generator)
    adapter = Adapter(
        torch.randn(4, 32, generator=generator).requires_grad_(),
        torch.randn(16, 4, generator=generator).requires_grad_(),
        2.0,
    )
    half = x.bfloat16().requires_grad_()
    output = adapted(half, weight.bfloat16(), None, [adapter])
    output.sum().backward()
    assert output.dtype == half.grad.dtype == torch.bfloat16  # type: ignore[union-attr]
    found = [adapter.down.grad, adapter.up.grad]
    adapter.down.grad = adapter.up.grad = None
    formula(x, weight, None, [adapter]).sum().backward()
    for ours, exact in zip(found, (adapter.down.grad, adapter.up.grad), strict=True):
        assert ours is not None and exact is not None and ours.dtype == torch.float32
        assert float((ours - exact).norm() / exact.norm()) < 0.02


def test_no_gradient_is_formed_for_an_input_that_wants_none() -> None:
    adapter = Adapter(torch.ones(1, 3).requires_grad_(), torch.ones(2, 1).requires_grad_(), 1.0)
    adapted(torch.ones(4, 3), torch.zeros(2, 3), None, [adapter]).sum().backward()
    assert adapter.down.grad is not None and adapter.up.grad is not None


def layers(bias: bool, **settings: object) -> tuple[Linear, LoraLinear]:
    """PEFT's own layer and ours with the same weights and adapter."""
    made = []
    for fast in (False, True):
        torch.manual_seed(4)
        model = nn.Sequential(nn.Linear(10, 6, bias=bias))
        config = LoraConfig(r=3, lora_alpha=7.0, target_modules=["0"], init_lora_weights=False, **settings)
        get_peft_model(model, use_fast_layers(config) if fast else config)
        made.append(model[0].eval())
    assert type(made[0]) is Linear and type(made[1]) is LoraLinear
    return made[0], made[1]


@pytest.mark.parametrize(
    ("bias", "settings"),
    [
        (True, {}),
        (False, {}),
        (True, {"use_rslora": True}),
        (True, {"use_dora": True}),
        (False, {"use_dora": True}),
        (True, {"lora_bias": True}),
    ],
)
def test_the_layer_gives_what_pefts_own_gives(bias: bool, settings: dict[str, object]) -> None:
    own, fast = layers(bias, **settings)
    x = torch.randn(2, 5, 10, generator=torch.Generator().manual_seed(5))
    expected = own(x)
    torch.testing.assert_close(fast(x), expected)
    with torch.no_grad():
        torch.testing.assert_close(fast(x), expected)
    own(x).square().sum().backward()
    fast(x).square().sum().backward()
    for (name, ours), theirs in zip(fast.named_parameters(), own.parameters(), strict=True):
        if ours.requires_grad:
            assert ours.grad is not None and theirs.grad is not None, name
            torch.testing.assert_close(ours.grad, theirs.grad)


def test_only_plain_adapters_are_taken_apart() -> None:
    for settings_, plain in (({}, True), ({"use_dora": True}, False), ({"lora_bias": True}, False)):
        _, fast = layers(True, **settings_)
        assert fast.is_plain is plain
        assert (fast.active() is not None) is plain


def test_a_merged_layer_gives_what_it_gave_before() -> None:
    _, fast = layers(True)
    x = torch.randn(4, 10, generator=torch.Generator().manual_seed(6))
    expected = fast(x).detach()
    fast.merge()
    assert fast.active() is None
    torch.testing.assert_close(fast(x).detach(), expected)


def test_a_layer_switches_between_two_adapters() -> None:
    _, fast = layers(False)
    fast.update_layer("other", 3, 7.0, LoraConfig(r=3, lora_alpha=7.0, init_lora_weights=False))
    x = torch.randn(4, 10, generator=torch.Generator().manual_seed(7))
    outputs = []
    for name in ("default", "other"):
        fast.set_adapter(name)
        adapter = fast.active()
        assert adapter is not None and adapter.down is fast.lora_A[name].weight
        outputs.append(fast(x))
        torch.testing.assert_close(outputs[-1], formula(x, fast.base_layer.weight, None, [adapter]))
    assert not torch.allclose(*outputs)


def test_disabled_adapters_leave_exactly_the_base(tmp_path: Path) -> None:
    policy = tiny_lora_policy("qwen2", tmp_path / "adapted")
    base = tiny_policy("qwen2", tmp_path / "base")
    with torch.no_grad():
        plain = packed_logprobs(base, [GROUP])
        adapted_logprobs = packed_logprobs(policy, [GROUP])
        with policy.model.disable_adapter():
            assert torch.equal(packed_logprobs(policy, [GROUP]), plain)
        assert torch.equal(packed_logprobs(policy, [GROUP]), adapted_logprobs)
    assert float((adapted_logprobs - plain).abs().max()) > 0.05


def test_all_linear_layers_but_the_head_are_adapted_without_dropout_and_bias(tmp_path: Path) -> None:
    model = adapt(tiny_policy("qwen2", tmp_path), LoraSettings(r=4, alpha=32.0), 0, None, "").model
    adapted_layers = {name.rpartition(".")[2] for name, m in model.named_modules() if isinstance(m, LoraLinear)}
    assert adapted_layers == {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
    config = model.peft_config["default"]
    assert (config.r, config.lora_alpha, config.lora_dropout, config.bias) == (4, 32.0, 0.0, "none")
    assert all(p.dtype == torch.float32 for name, p in model.named_parameters() if "lora" in name)


def test_adapters_stay_in_fp32_over_a_bf16_base(tmp_path: Path) -> None:
    policy = tiny_lora_policy("llama", tmp_path, torch.bfloat16)
    assert {parameter.dtype for parameter in policy.trainable()} == {torch.float32}
    assert policy.base.dtype == torch.bfloat16
