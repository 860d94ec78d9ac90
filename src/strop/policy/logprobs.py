"""Log-probabilities of given tokens, in fp32 and in chunks, without keeping the logits.

The head of a small model is a quarter of its work and its logits are most of its memory:
32 completions of 1,024 tokens over 152,000 words are 20 GB in fp32. Here each chunk of
positions goes from hidden state to log-probability at once. With a frozen head the gradient
is formed in the same pass, since it is linear in what comes from above; with a trained head
the chunk's logits are computed once more in the backward pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from strop.policy.attention import PackedLayout
from strop.policy.model import Policy

# Logits of one chunk, in fp32.
_CHUNK_BYTES = 64 * 2**20
# Probabilities kept for the backward pass of a trained head; above it they are computed again.
_KEPT_BYTES = 512 * 2**20


def token_logprobs(hidden_SD: Tensor, head_VD: Tensor, targets_S: Tensor, temperature: float) -> Tensor:
    """log softmax(hidden · headᵀ / temperature) at each target: fp32 `[S]`, differentiable."""
    return _TokenLogprobs.apply(hidden_SD, head_VD, targets_S, temperature)  # type: ignore[no-any-return, no-untyped-call]


@torch.no_grad()
def score_sequence(policy: Policy, prompt: Sequence[int], completion: Sequence[int], temperature: float) -> Tensor:
    """Log-probability of each token of one completion, `[len(completion)]`, without packing or sampler."""
    ids = torch.tensor([*prompt, *completion], device=policy.device)
    hidden = policy.hidden(ids[None], PackedLayout([len(ids)], (), (), policy.device))[0]
    start = len(prompt)
    return token_logprobs(hidden[start - 1 : -1], policy.head, ids[start:], temperature)


class _TokenLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, head: Tensor, targets: Tensor, temperature: float) -> Tensor:
        ctx.temperature, ctx.kept = temperature, None
        wants_hidden, wants_head = ctx.needs_input_grad[:2]
        slope = torch.empty_like(hidden) if wants_hidden and not wants_head else None
        fits = len(targets) * head.shape[0] * head.itemsize <= _KEPT_BYTES
        kept: list[Tensor] | None = [] if wants_head and fits else None
        logprobs = torch.empty(len(targets), dtype=torch.float32, device=hidden.device)
        logits = _Logits(head, temperature)
        for chunk in _chunks(len(targets), head.shape[0]):
            scores = torch.log_softmax(logits(hidden[chunk]), dim=-1)
            logprobs[chunk] = scores.gather(1, targets[chunk, None])[:, 0]
            if slope is not None:
                slope[chunk] = _slope(scores.exp_(), head, targets[chunk], temperature)
            elif kept is not None:
                kept.append(scores.exp_().to(head.dtype))
        ctx.kept = kept
        ctx.save_for_backward(*([slope] if slope is not None else [hidden, head, targets]))
        return logprobs

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        if len(ctx.saved_tensors) == 1:
            (slope,) = ctx.saved_tensors
            return slope * grads[0][:, None].to(slope.dtype), None, None, None
        return *_full_backward(ctx, grads[0]), None, None


class _Logits:
    """fp32 logits of hidden states. Products are summed in fp32 and stay so: rounding them to
    bf16 biases the softmax, and over many steps the entropy drifts down.

    A GPU multiplies bf16 into fp32. A CPU offers fp32 products of fp32 only, so head and states
    are widened; as both are bf16 numbers, oneDNN may then use bf16 units without any loss.
    """

    def __init__(self, head: Tensor, temperature: float) -> None:
        self._direct = head.device.type == "cuda" and head.dtype != torch.float32
        self._head = head if self._direct else head.float()
        self._lossless = head.dtype == torch.bfloat16
        self._temperature = temperature

    def __call__(self, hidden: Tensor) -> Tensor:
        if self._direct:
            return torch.mm(hidden, self._head.T, out_dtype=torch.float32).div_(self._temperature)
        with _fp32_products("bf16" if self._lossless else "ieee"):
            return (hidden.float() @ self._head.T).div_(self._temperature)


@contextmanager
def _fp32_products(precision: str) -> Iterator[None]:
    """What oneDNN may use for fp32 products inside the block. `torch.backends.mkldnn.flags`
    would do, but it also sets TF32, and warns that this CPU has none."""
    backend: Any = torch.backends.mkldnn  # its types leave `matmul` out
    matmul = backend.matmul
    before, matmul.fp32_precision = matmul.fp32_precision, precision
    try:
        yield
    finally:
        matmul.fp32_precision = before


def _chunks(count: int, vocabulary: int) -> list[slice]:
    size = max(1, _CHUNK_BYTES // (4 * vocabulary))
    return [slice(start, min(start + size, count)) for start in range(0, count, size)]


def _slope(probabilities: Tensor, head: Tensor, targets: Tensor, temperature: float) -> Tensor:
    """d logprob / d hidden `[s, D]`: (head[target] - probabilities · head) / temperature."""
    expected = probabilities.to(head.dtype) @ head
    return (head[targets] - expected).div_(temperature)


def _full_backward(ctx: Any, grad_S: Tensor) -> tuple[Tensor | None, Tensor]:
    """Gradients of hidden states and head; `d logits = grad · (onehot - probabilities) / T`."""
    hidden, head, targets = ctx.saved_tensors
    grad_hidden = torch.empty_like(hidden) if ctx.needs_input_grad[0] else None
    grad_head = torch.zeros_like(head, dtype=torch.float32)
    logits = None if ctx.kept else _Logits(head, ctx.temperature)
    for index, chunk in enumerate(_chunks(len(targets), head.shape[0])):
        probabilities = torch.softmax(logits(hidden[chunk]), dim=-1) if logits else ctx.kept[index]
        grad_logits = probabilities.neg_()
        grad_logits[torch.arange(len(grad_logits)), targets[chunk]] += 1
        grad_logits = grad_logits.mul_(grad_S[chunk, None] / ctx.temperature).to(hidden.dtype)
        grad_head += grad_logits.T @ hidden[chunk]
        if grad_hidden is not None:
            grad_hidden[chunk] = grad_logits @ head
    return grad_hidden, grad_head.to(head.dtype)
