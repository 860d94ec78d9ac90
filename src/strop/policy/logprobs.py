"""Log-probabilities of given tokens, in fp32 and in chunks, without keeping the logits.

The head of a small model is a quarter of its work and its logits are most of its memory:
32 completions of 1,024 tokens over 152,000 words are 20 GB in fp32. Here each chunk of
positions goes from hidden state to log-probability at once. With a frozen head the gradient
is formed in the same pass, since it is linear in what comes from above; with a trained head
the chunk's logits are computed once more in the backward pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from strop.policy.attention import PackedLayout
from strop.policy.model import Policy

_CHUNK_BYTES = 64 * 2**20


def token_logprobs(hidden_SD: Tensor, head_VD: Tensor, targets_S: Tensor, temperature: float) -> Tensor:
    """log softmax(hidden · headᵀ / temperature) at each target: fp32 `[S]`, differentiable."""
    return _TokenLogprobs.apply(hidden_SD, head_VD, targets_S, temperature)  # type: ignore[no-any-return]


@torch.no_grad()
def score_sequence(policy: Policy, prompt: Sequence[int], completion: Sequence[int], temperature: float) -> Tensor:
    """Log-probability of each token of one completion, `[len(completion)]`: no packing, no sampler."""
    ids = torch.tensor([*prompt, *completion], device=policy.device)
    hidden = policy.hidden(ids[None], PackedLayout([len(ids)], (), (), policy.device))[0]
    start = len(prompt)
    return token_logprobs(hidden[start - 1 : -1], policy.head, ids[start:], temperature)


def _chunks(count: int, vocabulary: int) -> list[slice]:
    size = max(1, _CHUNK_BYTES // (4 * vocabulary))
    return [slice(start, min(start + size, count)) for start in range(0, count, size)]


def _logits(hidden: Tensor, head: Tensor, temperature: float) -> Tensor:
    """fp32 logits. The products are summed in fp32 too: rounding them to bf16 biases the
    softmax, and over many steps the entropy drifts down."""
    if head.dtype == torch.float32:
        return (hidden.float() @ head.T).div_(temperature)
    return torch.mm(hidden, head.T, out_dtype=torch.float32).div_(temperature)


def _wide(head: Tensor) -> Tensor:
    """The head in the type that its products are summed in. A GPU multiplies bf16 into fp32;
    a CPU has no such product, so its head is widened, once for all chunks."""
    return head if head.device.type == "cuda" else head.float()


class _TokenLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, head: Tensor, targets: Tensor, temperature: float) -> Tensor:
        wants_hidden, wants_head = ctx.needs_input_grad[:2]
        wide = _wide(head)
        logprobs = torch.empty(len(targets), dtype=torch.float32, device=hidden.device)
        slope = torch.empty_like(hidden) if wants_hidden and not wants_head else None
        for chunk in _chunks(len(targets), head.shape[0]):
            scores = torch.log_softmax(_logits(hidden[chunk], wide, temperature), dim=-1)
            logprobs[chunk] = scores.gather(1, targets[chunk, None])[:, 0]
            if slope is not None:
                slope[chunk] = _slope(scores, head, targets[chunk], temperature)
        ctx.save_for_backward(*([slope] if slope is not None else [hidden, head, targets]))
        ctx.temperature = temperature
        return logprobs

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        grad_S = grads[0]
        if len(ctx.saved_tensors) == 1:
            (slope,) = ctx.saved_tensors
            return slope * grad_S[:, None].to(slope.dtype), None, None, None
        return *_full_backward(ctx, grad_S), None, None


def _slope(scores: Tensor, head: Tensor, targets: Tensor, temperature: float) -> Tensor:
    """d logprob / d hidden `[s, D]`: (head[target] - probabilities · head) / temperature."""
    expected = scores.exp_().to(head.dtype) @ head
    return (head[targets] - expected).div_(temperature)


def _full_backward(ctx: Any, grad_S: Tensor) -> tuple[Tensor | None, Tensor]:
    """Gradients of hidden states and head; `d logits = grad · (onehot - probabilities) / T`."""
    hidden, head, targets = ctx.saved_tensors
    grad_hidden = torch.empty_like(hidden) if ctx.needs_input_grad[0] else None
    grad_head = torch.zeros_like(head, dtype=torch.float32)
    wide = _wide(head)
    for chunk in _chunks(len(targets), head.shape[0]):
        grad_logits = torch.softmax(_logits(hidden[chunk], wide, ctx.temperature), dim=-1).neg_()
        grad_logits[torch.arange(len(grad_logits)), targets[chunk]] += 1
        grad_logits = grad_logits.mul_(grad_S[chunk, None] / ctx.temperature).to(hidden.dtype)
        grad_head += grad_logits.T @ hidden[chunk]
        if grad_hidden is not None:
            grad_hidden[chunk] = grad_logits @ head
    return grad_hidden, grad_head.to(head.dtype)
