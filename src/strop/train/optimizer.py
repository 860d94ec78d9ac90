"""AdamW over fp32 weights, whatever type the model computes in.

Adapters are fp32 themselves. Fully trained weights have an fp32 master each, and the model
computes with a copy in its own type. In bf16 an update of 1e-5 is far below the distance to
the next number: rounding to nearest would drop it until enough have piled up. The copy is
rounded stochastically instead, up or down with the chance that makes it right on average
(Gupta et al. 2015, arXiv:1502.02551), so that each step moves the policy that is sampled.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from peft import PeftModel
from torch import Tensor, nn

from strop.policy.model import Policy, cast_parameters
from strop.seeds import derive_seed

# Elements rounded at a time: small enough to stay in the cache of a core.
_ROUNDING_BLOCK = 2**20


class MasterAdamW:
    """The optimizer of a policy."""

    def __init__(self, policy: Policy, compute_dtype: torch.dtype, weight_decay: float, seed: int) -> None:
        """Takes the policy's trainable fp32 weights as masters.

        Adapters stay as they are. Of a fully trained model the policy is left with a copy to
        compute with, rounded to nearest, so that it starts as exactly what the reference is.
        """
        self._policy = policy
        self._seed = seed
        self._updates = 0
        self._rounding = 0
        """The number of updates after which the noise of the copy was drawn; 0 rounds to nearest."""
        self._computing = policy.trainable()
        self._masters = self._computing
        if policy.base.dtype != compute_dtype and not isinstance(policy.model, PeftModel):
            self._masters = [nn.Parameter(weight.detach().clone()) for weight in self._computing]
            cast_parameters(policy.model, compute_dtype)
            policy.refresh()
        self._weight_decay = weight_decay
        self._adamw = torch.optim.AdamW(self._masters, lr=0.0, weight_decay=0.0, fused=True)

    @property
    def has_copy(self) -> bool:
        """Whether the model computes with a copy of the masters."""
        return self._computing is not self._masters

    def collect(self) -> None:
        """Move the gradients of a backward pass to the masters, adding them up in fp32."""
        if not self.has_copy:
            return
        for master, weight in zip(self._masters, self._computing, strict=True):
            if weight.grad is not None:
                grad = weight.grad.float()
                master.grad = grad if master.grad is None else master.grad.add_(grad)
                weight.grad = None

    @property
    def updates(self) -> int:
        """How often the weights were updated."""
        return self._updates

    def step(self, learning_rate: float, max_norm: float, last: bool = True) -> float:
        """Update with gradients scaled down to `max_norm`, and forget them. Returns their norm
        before; if that is zero or not finite, nothing is changed.

        The copy keeps its noise until the last update of a step: the ratio between two passes
        would otherwise measure the rounding.
        """
        norm = float(nn.utils.clip_grad_norm_(self._masters, max_norm))
        # With a gradient of zero AdamW would still move by its momentum, and new noise would be drawn.
        if math.isfinite(norm) and norm > 0:
            for group in self._adamw.param_groups:
                group["lr"] = learning_rate
            self._decay(learning_rate)
            self._adamw.step()
            self._updates += 1
            if not last:
                self._spread()
        if last:
            self.settle()
        self.discard()
        return norm

    def settle(self) -> None:
        """End a step: give the copy new noise, if there was an update since it was drawn."""
        if self._rounding != self._updates:
            self._rounding = self._updates
            self._spread()

    def discard(self) -> None:
        """Forget the gradients."""
        for weight in (*self._masters, *self._computing):
            weight.grad = None

    def weights(self) -> dict[str, Tensor]:
        """The masters by the names that the model gives them."""
        names = [name for name, weight in self._policy.model.named_parameters() if weight.requires_grad]
        return {name: master.detach() for name, master in zip(names, self._masters, strict=True)}

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint needs beside the weights."""
        return {"adamw": self._adamw.state_dict(), "updates": self._updates}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a checkpoint whose weights the policy has loaded."""
        self._adamw.load_state_dict(state["adamw"])
        self._updates = state["updates"]
        self.settle()

    @torch.no_grad()
    def _decay(self, learning_rate: float) -> None:
        """AdamW's decoupled weight decay, of matrices only: norms and biases are no weights to shrink."""
        if self._weight_decay:
            for master in self._masters:
                if master.ndim > 1:
                    master.mul_(1 - learning_rate * self._weight_decay)

    def _spread(self) -> None:
        """Let the model compute with the masters' new values."""
        if self.has_copy:
            noise = self._noise()
            for master, weight in zip(self._masters, self._computing, strict=True):
                if noise is None:
                    weight.detach().copy_(master.detach())
                else:
                    round_stochastically(master.detach(), weight.detach(), noise)
        self._policy.refresh()

    def _noise(self) -> Tensor | None:
        if not self._rounding:
            return None
        generator = torch.Generator().manual_seed(derive_seed(self._seed, "rounding", self._rounding))
        noise = torch.randint(0, 2**16, (_ROUNDING_BLOCK,), dtype=torch.int32, generator=generator)
        return noise.to(self._policy.device)


def round_stochastically(source: Tensor, target: Tensor, noise: Tensor) -> None:
    """Write fp32 `source` into bf16 `target`, up or down with the chance that keeps the mean.

    bf16 is the upper half of fp32: adding 16 random bits below it carries over with just that
    chance. `noise` holds integers below 2**16 and is used again for every block.
    """
    if target.dtype != torch.bfloat16:
        target.copy_(source)
        return
    flat_source, flat_target = source.view(-1), target.view(-1)
    for start in range(0, flat_source.numel(), len(noise)):
        bits = flat_source[start : start + len(noise)].view(torch.int32)
        rounded = (bits + noise[: len(bits)]).bitwise_and_(-(2**16))
        flat_target[start : start + len(noise)] = rounded.view(torch.float32)
