"""Sampling of tokens from logits.

Each sequence has its own uniform random numbers, fixed by a seed, so that its tokens do not depend on other
sequences.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from strop.errors import ModelError
from strop.seeds import derive_seed
from strop.types import SamplingParams

Alternatives = tuple[tuple[int, float], ...]
"""Candidate ids with their log-probabilities, most likely first."""


class NotFinite(ModelError):
    """Some rows have non-finite logits."""

    def __init__(self, rows: Sequence[int]) -> None:
        super().__init__("the model's logits are not finite: its weights are damaged, or its type overflows")
        self.rows = rows


def draw(logits: Tensor, temperature_N: Tensor, top_p_N: Tensor, uniform_N: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Sample one token per row by inverse-CDF sampling with one uniform number.

    Returns ids, their log-probabilities and the entropies (nats), each `[N]`, of the softmax at
    the row's temperature. Temperature 0 takes the most likely token and reports values at temperature 1. `top_p`
    affects the sampled token, not the reported values.
    """
    greedy = temperature_N == 0
    scores = logits.to(torch.float32, copy=True).div_(torch.where(greedy, 1.0, temperature_N)[:, None])
    weights = torch.softmax(scores, dim=-1)
    top, top_id = scores.max(dim=-1)
    # log Z without another pass: the likeliest token has log p = score - log Z.
    log_total = top - weights.gather(1, top_id[:, None])[:, 0].log()
    entropy = log_total - torch.linalg.vecdot(weights, scores)
    if bool((top_p_N < 1).any()):
        weights = _nucleus(weights, top_p_N)
    ids = torch.where(greedy, top_id, invert_cdf(weights, uniform_N))
    logprobs = scores.gather(1, ids[:, None])[:, 0] - log_total
    finite = torch.isfinite(logprobs)
    if not bool(finite.all()):
        raise NotFinite((~finite).nonzero()[:, 0].tolist())
    return ids, logprobs, entropy


def likeliest(logits: Tensor, temperature_N: Tensor, count: int) -> list[Alternatives]:
    """The `count` most likely ids of each row with their log-probabilities, as reported by `draw`."""
    scores = logits.float() / torch.where(temperature_N == 0, 1.0, temperature_N)[:, None]
    values, ids = torch.log_softmax(scores, dim=-1).topk(min(count, scores.shape[-1]), dim=-1)
    return [tuple(zip(row, own, strict=True)) for row, own in zip(ids.tolist(), values.tolist(), strict=True)]


def invert_cdf(weights: Tensor, uniform_N: Tensor) -> Tensor:
    """The first index `[N]` at which the running sum of weights `[N, V]` passes uniform · total.

    Sums of blocks are searched first, then the block: a running sum over a whole vocabulary
    is the slowest part of drawing. An entry of weight zero is never drawn.
    """
    count, size = weights.shape
    width = next(width for width in (256, 128, 64, 32, 1) if size % width == 0)
    blocks = weights.view(count, -1, width)
    running = blocks.sum(-1).cumsum(-1)
    marks = uniform_N[:, None].to(running.dtype) * running[:, -1:]
    block = torch.searchsorted(running, marks, right=True).clamp_(max=running.shape[1] - 1)
    marks -= torch.where(block > 0, running.gather(1, (block - 1).clamp_(min=0)), 0.0)
    inside = blocks.gather(1, block[:, :, None].expand(-1, -1, width))[:, 0].cumsum(-1)
    # Rounding may put the mark at the very end of the block: then its last weight counts.
    last = inside.argmax(-1, keepdim=True)
    found = torch.minimum(torch.searchsorted(inside, marks, right=True), last)
    return (block * width + found)[:, 0]


def _nucleus(probabilities: Tensor, top_p_N: Tensor) -> Tensor:
    """Set all but the most likely tokens with total probability `top_p` to zero (Holtzman et al. 2020)."""
    ranked, order = probabilities.sort(dim=-1, descending=True)
    before = ranked.cumsum(-1) - ranked
    # A row that wants all of them loses none to a running sum that rounding took past 1.
    limit = torch.where(top_p_N < 1, top_p_N, torch.inf)[:, None]
    kept = torch.where(before < limit, ranked, 0.0)
    return torch.zeros_like(probabilities).scatter_(1, order, kept)


def uniforms(params: SamplingParams, index: int) -> list[float]:
    """One uniform number per possible token of the completion, fixed by seed and index."""
    generator = torch.Generator().manual_seed(derive_seed(params.seed, index))
    return torch.rand(params.max_tokens, generator=generator, dtype=torch.float32).tolist()


def numbers(values: list[float], device: torch.device) -> Tensor:
    """A fp32 tensor, whatever torch's default type: loading a model in another thread changes it."""
    return torch.tensor(values, dtype=torch.float32, device=device)
