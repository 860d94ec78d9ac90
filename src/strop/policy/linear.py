"""Linear layers with the same input, computed as one matrix product.

Query, key and value, or gate and up, read the same activations: one wide product replaces three narrow ones,
including adapters. On a CPU, products without a gradient run on weights
that are packed once into the layout of the kernel (oneDNN's): with few rows, as in decoding,
that is up to twice as fast in bf16 and in fp32.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from strop.policy.lora import Adapter, LoraLinear, adapted, stacked

# The number of rows that packed weights are laid out for; others work, hardly slower.
_ROWS = 32


class PackedWeight:
    """A weight matrix for products without a gradient."""

    def __init__(self, weight: Tensor) -> None:
        self._is_packed = weight.device.type == "cpu" and _can_pack(weight.dtype)
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight, _ROWS) if self._is_packed else weight
        self.extra_bytes = weight.nbytes if self._is_packed else 0
        """Additional memory in bytes, without the weight itself."""

    def product(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """x Wᵀ + b."""
        if not self._is_packed:
            return linear(x, self._weight, bias)
        return torch.ops.mkldnn._linear_pointwise(x, self._weight, bias, "none", [], "")  # type: ignore[no-any-return]


def _can_pack(dtype: torch.dtype) -> bool:
    """Whether this torch build and CPU have the kernels, which are not part of torch's public interface."""
    if not (torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")):
        return False
    return dtype != torch.bfloat16 or bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


class FrozenMatrix:
    """Stack frozen weights. They become views of one matrix, so that nothing is stored twice."""

    def __init__(self, parts: Sequence[Tensor]) -> None:
        self._parts = parts  # the ids by which `FrozenWeights` finds this stay theirs
        self.weight = _stack(parts)

    @cached_property
    def packed(self) -> PackedWeight:
        """Packed weights for products without a gradient, created on first use."""
        return PackedWeight(self.weight)


class FrozenWeights:
    """Frozen matrices, each stacked and packed once for all models that share the weights."""

    def __init__(self) -> None:
        self._matrices: dict[tuple[int, ...], FrozenMatrix] = {}

    def matrix(self, parts: Sequence[Tensor]) -> FrozenMatrix:
        """The matrix of these parameters, created once."""
        key = tuple(id(part) for part in parts)
        if key not in self._matrices:
            self._matrices[key] = FrozenMatrix(parts)
        return self._matrices[key]

    @property
    def packed_bytes(self) -> int:
        """Additional memory of the packed forms in bytes."""
        return sum(matrix.packed.extra_bytes for matrix in self._matrices.values())


class SharedInput:
    """Linear layers with the same input; the output is their concatenation, `[..., ΣN]`.

    Frozen layers are stacked for good; layers that are trained keep their weights to themselves.
    """

    def __init__(self, layers: Sequence[nn.Module], frozen: FrozenWeights | None = None) -> None:
        """`layers` are `nn.Linear` or `LoraLinear`; `frozen` contains matrices shared with other models."""
        self._layers = layers
        self._bases = [_base(layer) for layer in layers]
        weights = [base.weight for base in self._bases]
        trained = any(weight.requires_grad for weight in weights)
        self._frozen = None if trained else (frozen or FrozenWeights()).matrix(weights)
        self._bias = _stacked_bias(self._bases)
        self._packed: PackedWeight | None = None
        self._adapters: list[Adapter] | None = None
        self._low_rank: tuple[Tensor, Tensor] | None = None

    def refresh(self) -> None:
        """Drop values derived from weights or adapters, after they have changed."""
        self._adapters = None
        self._low_rank = None
        if self._frozen is None:
            self._packed = None

    def __call__(self, x: Tensor) -> Tensor:
        adapters = self._active_adapters()
        if not torch.is_grad_enabled():
            return self._without_gradient(x, adapters)
        if self._frozen is None:
            return torch.cat([linear(x, base.weight, base.bias) for base in self._bases], dim=-1)
        if adapters:
            return adapted(x, self._frozen.weight, self._bias, adapters)
        return linear(x, self._frozen.weight, self._bias)

    def _without_gradient(self, x: Tensor, adapters: Sequence[Adapter]) -> Tensor:
        if self._packed is None:
            self._packed = self._pack()
        output = self._packed.product(x, self._bias)
        if not adapters:
            return output
        if self._low_rank is None:
            matrices = [matrix for adapter in adapters for matrix in (adapter.down, adapter.up)]
            down, up = stacked(matrices, [adapter.scale for adapter in adapters], x.dtype)
            self._low_rank = down.T.contiguous(), up.T.contiguous()
        down, up = self._low_rank
        output.view(-1, output.shape[-1]).addmm_(x.reshape(-1, x.shape[-1]) @ down, up)
        return output

    def _pack(self) -> PackedWeight:
        if self._frozen is not None:
            return self._frozen.packed
        self._bias = _stacked_bias(self._bases)  # trained, like the weights
        return PackedWeight(torch.cat([base.weight for base in self._bases]))

    def _active_adapters(self) -> list[Adapter]:
        """One adapter per layer, including empty ones, or None."""
        if any(isinstance(layer, LoraLinear) and layer.disable_adapters for layer in self._layers):
            return []
        if self._adapters is None:
            active = [layer.active() if isinstance(layer, LoraLinear) else None for layer in self._layers]
            pairs = zip(active, self._bases, strict=True)
            self._adapters = [adapter or _nothing(base) for adapter, base in pairs] if any(active) else []
        return self._adapters


def _base(layer: nn.Module) -> nn.Linear:
    if isinstance(layer, LoraLinear) and not layer.is_plain:
        raise TypeError("the adapter is more than plain LoRA")
    base = layer.get_base_layer() if isinstance(layer, LoraLinear) else layer
    if not isinstance(base, nn.Linear):
        raise TypeError(f"{type(base).__name__} is not a plain linear layer")
    return base


def _stack(weights: Sequence[Tensor]) -> Tensor:
    """One matrix with all weights, which become views of it."""
    if len(weights) == 1:
        return weights[0].detach()
    stack = torch.cat([weight.detach() for weight in weights])
    start = 0
    for weight in weights:
        end = start + weight.shape[0]
        weight.data = stack[start:end]
        start = end
    return stack


def _stacked_bias(layers: Sequence[nn.Linear]) -> Tensor | None:
    """Concatenated biases, with zeros for layers without a bias; None if no layer has one."""
    if all(layer.bias is None for layer in layers):
        return None
    return torch.cat([layer.weight[:, 0] * 0 if layer.bias is None else layer.bias for layer in layers])


def _nothing(layer: nn.Linear) -> Adapter:
    """An adapter of rank 0, for a layer without an adapter next to layers with one."""
    weight = layer.weight
    return Adapter(weight.new_zeros(0, weight.shape[1]), weight.new_zeros(weight.shape[0], 0), 1.0)
