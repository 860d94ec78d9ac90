"""Attention by layout: how strop runs a transformers model without its caches and masks.

A model loaded with `attn_implementation="strop"` hands every attention call to `attend`,
which hands it on to the `Layout` that came as a keyword of the forward call. A layout
knows where each token of the flat batch `[1, T]` stands and what it may look at; this
module knows nothing about weights, tokens or sampling.

- `PackedLayout`: prompts, each once, with their completions behind them (training, prefill).
- `DecodeLayout`: one new token for each of many sequences, keys and values in a `KvSlab`.

Keeping keys and values here, and not in a transformers cache, means that no cache class
of a transformers release is touched: the attention function interface is the only joint.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from strop.errors import ModelError

ATTENTION = "strop"


class Layout(Protocol):
    """Where the tokens of one forward stand, and what each may attend to."""

    @property
    def position_ids(self) -> Tensor:
        """Positions, integers `[1, T]`."""

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float, window: int | None
    ) -> Tensor:
        """Query `[1, H, T, D]`, key and value `[1, Hkv, T, D]` to the output `[1, T, H, D]`."""


def attend(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    layout: Layout | None = None,
    **extras: Any,
) -> tuple[Tensor, None]:
    """The attention function that transformers calls for every layer.

    Raises ModelError when the model wants more than plain or sliding-window attention:
    an extra such as a soft cap or attention sinks would otherwise be dropped in silence.
    """
    unsupported = sorted(name for name in ("softcap", "s_aux", "position_bias") if extras.get(name) is not None)
    if unsupported or dropout or layout is None:
        reason = f"needs {', '.join(unsupported)}" if unsupported else "was called with dropout or without a layout"
        raise ModelError(f"{type(module).__name__} {reason}, which strop's attention does not support")
    layer = module.layer_idx
    assert isinstance(layer, int)
    return layout.attend(layer, query, key, value, scaling, sliding_window), None


AttentionInterface.register(ATTENTION, attend)


@dataclass(frozen=True)
class PackedLayout:
    """Prompts and their completions in one flat row: each prompt, then its completions.

    Every completion attends to its own prompt and to itself, never to its siblings, so
    one pass over the prompt serves the whole group. The work is that of short sequences,
    not of a dense mask over the whole row.
    """

    positions: Tensor
    """[T] position of each token; completions restart after their prompt."""
    prompts: Tensor
    """[N, P] index of each prompt token in the flat row, padded with 0 on the right."""
    completions: Tensor
    """[C, L] index of each completion token, padded with 0 on the right; C may be 0."""
    owners: Tensor
    """[C] row of `prompts` that a completion continues."""
    prompt_mask: Tensor | None
    """[N, 1, P, P] causal mask; None where all prompts have the same length."""
    completion_mask: Tensor
    """[C, 1, L, P + L] what a completion token sees of its prompt and of itself."""
    gather: Tensor
    """[T] for each flat token, its place in the padded outputs (prompts, then completions)."""
    distances: Tensor
    """[C, 1, L, P + L] query position minus key position, for sliding windows."""
    slab: KvSlab | None = None
    """Where to keep the keys and values of the prompts, for decoding later."""

    @classmethod
    def build(
        cls,
        prompt_lengths: Sequence[int],
        completion_lengths: Sequence[Sequence[int]],
        device: torch.device,
        slab: KvSlab | None = None,
    ) -> PackedLayout:
        """Lay out prompts of the given lengths, each followed by its completions."""
        raise NotImplementedError
