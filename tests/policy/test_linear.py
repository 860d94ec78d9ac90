"""Products of layers that share their input, against the layers one by one."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import pytest
import torch
from peft import get_peft_model
from torch import Tensor, nn

from strop.policy.linear import PackedWeight, SharedInput
from strop.policy.lora import LoraLinear, lora_config


class Block(nn.Module):
    """Three layers with one input, as query, key and value are."""

    def __init__(self, biases: Sequence[bool], dtype: torch.dtype) -> None:
        super().__init__()
        self.q = nn.Linear(16, 24, bias=biases[0], dtype=dtype)
        self.k = nn.Linear(16, 8, bias=biases[1], dtype=dtype)
        self.v = nn.Linear(16, 8, bias=biases[2], dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.q(x), self.k(x), self.v(x)], dim=-1)

    @property
    def layers(self) -> list[nn.Module]:
        return [self.q, self.k, self.v]


def block(
    biases: Sequence[bool] = (True, False, True),
    adapted: Sequence[str] = (),
    frozen: bool = True,
    dtype: torch.dtype = torch.float32,
) -> Block:
    """A block with adapters, not zero, on the layers named."""
    torch.manual_seed(1)
    model = Block(biases, dtype).requires_grad_(not frozen)
    if adapted:
        config = lora_config(4, 8.0, tuple(adapted))
        config.task_type = None
        get_peft_model(model, config)
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                nn.init.normal_(parameter, std=0.3)
    return model


def inputs(rows: int = 7, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(2, rows, 16, generator=torch.Generator().manual_seed(2)).to(dtype)


ADAPTED = [(), ("q",), ("k", "v"), ("q", "k", "v")]


@pytest.mark.parametrize("biases", [(False, False, False), (True, True, True), (True, False, True)])
@pytest.mark.parametrize("adapted", ADAPTED)
@pytest.mark.parametrize("gradient", [True, False])
def test_the_output_is_that_of_the_layers_side_by_side(
    biases: tuple[bool, ...], adapted: tuple[str, ...], gradient: bool
) -> None:
    model = block(biases, adapted)
    with torch.set_grad_enabled(gradient):
        expected = model(inputs())
        torch.testing.assert_close(SharedInput(model.layers)(inputs()), expected)


@pytest.mark.parametrize("adapted", ADAPTED)
def test_bf16_output_is_as_close_to_exact_as_that_of_the_layers(adapted: tuple[str, ...]) -> None:
    model = block(adapted=adapted, dtype=torch.bfloat16)
    for name, parameter in model.named_parameters():  # adapters stay in fp32 over a bf16 base
        if "lora" in name:
            parameter.data = parameter.data.float()
    x = inputs(dtype=torch.bfloat16)
    exact = copy.deepcopy(model).float()(x.float()).detach()
    for gradient in (True, False):
        with torch.set_grad_enabled(gradient):
            found = SharedInput(model.layers)(x)
        assert found.dtype == torch.bfloat16
        assert float((found.detach().float() - exact).norm() / exact.norm()) < 0.01


@pytest.mark.parametrize("adapted", ADAPTED)
def test_gradients_are_those_of_the_layers(adapted: tuple[str, ...]) -> None:
    model = block(adapted=adapted)
    gradients = []
    for run in (model, SharedInput(model.layers)):
        x = inputs().requires_grad_()
        run(x).square().sum().backward()
        gradients.append([x.grad, *(p.grad.clone() for p in model.parameters() if p.grad is not None)])
        model.zero_grad()
    assert len(gradients[0]) == len(gradients[1]) == 1 + 2 * len(adapted)
    for plain, shared in zip(*gradients, strict=True):
        torch.testing.assert_close(shared, plain)


def test_trained_layers_get_gradients_of_weights_and_biases() -> None:
    model = block(frozen=False)
    gradients = []
    for run in (model, SharedInput(model.layers)):
        run(inputs()).square().sum().backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
        model.zero_grad()
    assert len(gradients[0]) == 5
    for plain, shared in zip(*gradients, strict=True):
        torch.testing.assert_close(shared, plain)


def test_frozen_weights_become_views_of_one_matrix() -> None:
    model = block()
    before = [parameter.clone() for parameter in model.parameters()]
    SharedInput(model.layers)
    storages = {layer.weight.untyped_storage().data_ptr() for layer in (model.q, model.k, model.v)}
    assert len(storages) == 1
    assert all(torch.equal(now, was) for now, was in zip(model.parameters(), before, strict=True))


def test_trained_weights_keep_to_themselves() -> None:
    model = block(frozen=False)
    SharedInput(model.layers)
    assert len({layer.weight.untyped_storage().data_ptr() for layer in (model.q, model.k, model.v)}) == 3


@pytest.mark.parametrize("frozen", [True, False])
def test_changed_adapters_weights_and_biases_count_after_a_refresh(frozen: bool) -> None:
    model = block(adapted=("q", "v") if frozen else (), frozen=frozen)
    shared = SharedInput(model.layers)
    with torch.no_grad():
        before = shared(inputs())
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.5)
        shared.refresh()
        torch.testing.assert_close(shared(inputs()), model(inputs()))
        assert not torch.allclose(shared(inputs()), before)


def test_adapters_that_are_off_change_nothing_at_once() -> None:
    model = block(adapted=("q", "k", "v"))
    shared = SharedInput(model.layers)
    plain = block()(inputs())
    for gradient in (True, False):
        with torch.set_grad_enabled(gradient):
            adapted = shared(inputs())
            for layer in model.layers:
                assert isinstance(layer, LoraLinear)
                layer.enable_adapters(False)
            torch.testing.assert_close(shared(inputs()), plain)
            for layer in model.layers:
                assert isinstance(layer, LoraLinear)
                layer.enable_adapters(True)
            torch.testing.assert_close(shared(inputs()), adapted)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [1, 31, 32, 33, 200])
def test_packed_weights_give_the_plain_product_for_any_number_of_rows(rows: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(3)
    weight, bias = torch.randn(40, 16, generator=generator).to(dtype), torch.randn(40, generator=generator).to(dtype)
    x = torch.randn(rows, 16, generator=generator).to(dtype)
    packed = PackedWeight(weight)
    atol, rtol = (1e-5, 1e-5) if dtype == torch.float32 else (0.1, 0.02)
    torch.testing.assert_close(packed.product(x), nn.functional.linear(x, weight), atol=atol, rtol=rtol)
    torch.testing.assert_close(
        packed.product(x[None], bias), nn.functional.linear(x[None], weight, bias), atol=atol, rtol=rtol
    )


def test_a_layer_that_is_not_linear_is_refused() -> None:
    with pytest.raises(TypeError, match="Embedding is not a plain linear layer"):
        SharedInput([nn.Embedding(3, 4)])
