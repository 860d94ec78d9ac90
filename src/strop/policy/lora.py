"""LoRA layers on PEFT, with a forward that costs little more than the frozen layer.

PEFT owns the adapters: their initialisation, names and files. Only the arithmetic of a
linear layer is ours. PEFT casts every input to fp32 and adds the two products in separate
passes over the activations; here both small products run in the compute type of the base
and the second accumulates into the output of the first. The adapters themselves stay fp32
and are never merged into the base: a bf16 base would swallow their updates.
"""

from __future__ import annotations

from typing import Any

import torch
from peft import LoraConfig
from peft.tuners.lora import Linear
from torch import Tensor


class LoraLinear(Linear):  # type: ignore[misc]
    """PEFT's linear LoRA layer, computed by `_AdaptedLinear` where it is plain LoRA."""

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        names = [name for name in self.active_adapters if name in self.lora_A]
        plain = len(names) == 1 and not self.lora_variant and not self.merged and not args and not kwargs
        if self.disable_adapters or not plain or self.lora_bias[names[0]] or torch.is_autocast_enabled(x.device.type):
            return super().forward(x, *args, **kwargs)  # type: ignore[no-any-return]
        (name,) = names
        base = self.get_base_layer()
        down, up = self.lora_A[name].weight, self.lora_B[name].weight
        return _AdaptedLinear.apply(x, base.weight, base.bias, down, up, self.scaling[name])  # type: ignore[no-any-return]


def lora_config(r: int, alpha: float, targets: tuple[str, ...] | str) -> LoraConfig:
    """Adapters without dropout and bias on the named layers, or on all linear ones but the head."""
    config = LoraConfig(
        r=r,
        lora_alpha=alpha,
        lora_dropout=0.0,
        bias="none",
        task_type="CAUSAL_LM",
        target_modules=targets if isinstance(targets, str) else list(targets),
    )
    return use_fast_layers(config)


def use_fast_layers(config: LoraConfig) -> LoraConfig:
    """Have PEFT build `LoraLinear` for linear layers, also for an adapter that is loaded."""
    config._register_custom_module({torch.nn.Linear: LoraLinear})
    return config


class _AdaptedLinear(torch.autograd.Function):
    """y = x Wᵀ + b + scale · (x Aᵀ) Bᵀ, with W and b frozen (Hu et al. 2021, arXiv:2106.09685).

    x [..., K], W [N, K], A [r, K], B [N, r]. The small matrices are rounded to the type of
    x for the products; their gradients come back in their own type.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, down: Tensor, up: Tensor, scale: float
    ) -> Tensor:
        down, up = down.to(x.dtype), (up * scale).to(x.dtype)
        output = torch.nn.functional.linear(x, weight, bias)
        low = x.reshape(-1, x.shape[-1]) @ down.T
        output.view(-1, output.shape[-1]).addmm_(low, up.T)
        ctx.save_for_backward(x, weight, down, up, low)
        ctx.scale = scale
        return output

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, down, up, low = ctx.saved_tensors
        flat_x, flat = x.reshape(-1, x.shape[-1]), grads[0].reshape(-1, grads[0].shape[-1])
        flat_low = flat @ up
        grad_x = None
        if ctx.needs_input_grad[0]:
            grad_x = (flat @ weight).addmm_(flat_low, down).view(x.shape)
        grad_down = (flat_low.T @ flat_x).float()
        grad_up = (flat.T @ low).float() * ctx.scale
        return grad_x, None, None, grad_down, grad_up, None
