"""LoRA on PEFT, with computation that costs little more than the frozen layer.

PEFT manages initialisation, names and files of the adapters. Only the matrix product is strop's.
PEFT casts every input to fp32 and adds the two parts in separate passes over the
activations; here both small products run in the compute type of the base, and the second
accumulates into the output of the first. The adapters themselves stay fp32 and are never
merged into the base: a bf16 base would swallow their updates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from peft import LoraConfig
from peft.tuners.lora import Linear
from torch import Tensor


@dataclass(frozen=True)
class Adapter:
    """The active adapter of one linear layer."""

    down: Tensor
    """A, `[r, K]`, fp32."""
    up: Tensor
    """B, `[N, r]`, fp32."""
    scale: float


class LoraLinear(Linear):  # type: ignore[misc]
    """PEFT's linear LoRA layer, computed by `adapted` if it is plain LoRA."""

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if self.disable_adapters:
            return self.base_layer(x)  # type: ignore[no-any-return]
        adapter = self.active()
        if adapter is None or args or kwargs:
            return super().forward(x, *args, **kwargs)  # type: ignore[no-any-return]
        base = self.get_base_layer()
        return adapted(x, base.weight, base.bias, [adapter])

    @property
    def is_plain(self) -> bool:
        """Whether every adapter consists of exactly two matrices."""
        return not (self.merged or self.lora_variant or any(self.lora_bias.values()))

    def active(self) -> Adapter | None:
        """The adapter to add; None if adapters are disabled or are not exactly one plain LoRA."""
        names = [name for name in self.active_adapters if name in self.lora_A]
        if self.disable_adapters or len(names) != 1 or not self.is_plain:
            return None
        (name,) = names
        return Adapter(self.lora_A[name].weight, self.lora_B[name].weight, self.scaling[name])


def lora_config(r: int, alpha: float, targets: Sequence[str]) -> LoraConfig:
    """PEFT configuration: adapters without dropout and bias on the named layers."""
    config = LoraConfig(
        r=r,
        lora_alpha=alpha,
        lora_dropout=0.0,
        bias="none",
        task_type="CAUSAL_LM",
        target_modules=list(targets),
    )
    return use_fast_layers(config)


def use_fast_layers(config: LoraConfig) -> LoraConfig:
    """Make PEFT build `LoraLinear` for linear layers, also for a loaded adapter."""
    config._register_custom_module({torch.nn.Linear: LoraLinear})
    return config


def adapted(x: Tensor, weight: Tensor, bias: Tensor | None, adapters: Sequence[Adapter]) -> Tensor:
    """y = x Wᵀ + b + scale · (x Aᵀ) Bᵀ, with W and b frozen (Hu et al. 2021, arXiv:2106.09685).

    x `[..., K]`, W `[N, K]`. Several adapters belong to layers that share their input: W is
    theirs stacked, and each adapter adds to its own rows of it.
    """
    matrices = [matrix for adapter in adapters for matrix in (adapter.down, adapter.up)]
    scales = tuple(adapter.scale for adapter in adapters)
    return _Adapted.apply(x, weight, bias, scales, *matrices)  # type: ignore[no-any-return, no-untyped-call]


class _Adapted(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, scales: tuple[float, ...], *matrices: Tensor
    ) -> Tensor:
        down, up = stacked(matrices, scales, x.dtype)
        output = torch.nn.functional.linear(x, weight, bias)
        low = x.reshape(-1, x.shape[-1]) @ down.T
        output.view(-1, output.shape[-1]).addmm_(low, up.T)
        ctx.save_for_backward(x, weight, down, up, low)
        ctx.scales, ctx.shapes = scales, [matrix.shape for matrix in matrices]
        return output

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        x, weight, down, up, low = ctx.saved_tensors
        flat_x, flat = x.reshape(-1, x.shape[-1]), grads[0].reshape(-1, grads[0].shape[-1])
        flat_low = flat @ up
        grad_x = None
        if ctx.needs_input_grad[0]:
            grad_x = (flat @ weight).addmm_(flat_low, down).view(x.shape)
        grad_down = (flat_low.T @ flat_x).float()
        grad_up = (flat.T @ low).float()
        return grad_x, None, None, None, *_unstacked(grad_down, grad_up, ctx.scales, ctx.shapes)


def stacked(matrices: Sequence[Tensor], scales: Sequence[float], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """A's on top of each other `[Σr, K]`, and scaled B's along a diagonal `[ΣN, Σr]`."""
    if len(scales) == 1:
        return matrices[0].to(dtype), (matrices[1] * scales[0]).to(dtype)
    ups = [up * scale for up, scale in zip(matrices[1::2], scales, strict=True)]
    return torch.cat(list(matrices[::2])).to(dtype), torch.block_diag(*ups).to(dtype)


def _unstacked(
    grad_down: Tensor, grad_up: Tensor, scales: Sequence[float], shapes: Sequence[torch.Size]
) -> list[Tensor]:
    """The blocks of the stacked gradients that belong to each A and B, in the order of `matrices`."""
    grads: list[Tensor] = []
    row = column = 0
    for scale, down, up in zip(scales, shapes[::2], shapes[1::2], strict=True):
        r, outputs = down[0], up[0]
        grads += [grad_down[column : column + r], grad_up[row : row + outputs, column : column + r] * scale]
        row, column = row + outputs, column + r
    return grads
