"""Attention by layout: how strop runs a transformers model without its caches and masks.

A model loaded with `attn_implementation="strop"` passes every attention call to `attend`, which passes it to the
`Layout` given as a keyword of the forward call. A layout defines the position of each token and what it may attend
to; this module is independent of weights, vocabularies and sampling.

- `PackedLayout`: prompts, each once, followed by their completions (training).
- `PrefillLayout`: prompts alone, whose keys and values are stored in a `KvSlab`.
- `DecodeLayout`: one new token for each of many sequences of a `KvSlab`.

Because keys and values are stored here and not in a transformers cache, strop uses no cache or mask class of
transformers: the attention function is the only interface.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from strop.errors import ModelError

ATTENTION = "strop"

# Up to this many scores a head, two matmuls and a softmax beat the fused kernel on a CPU in
# bf16 (2-4 times, backward included); above it the fused kernel wins, and saves memory.
_MATMUL_SCORES = 64 * 1024

# A longer prompt is prefilled by a kernel that never writes its scores down: they grow with the square.
_DENSE_PROMPT = 1024


class Layout(Protocol):
    """Positions of the tokens in one forward pass, and what each may attend to."""

    @property
    def positions(self) -> Tensor:
        """Position of each token, integers of the shape of the input ids."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float, window: int | None) -> Tensor:
        """Query `[B, H, T, D]`, key and value `[B, Hkv, T, D]` to the output `[B, T, H, D]`."""


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
    """The attention function that transformers calls in every layer.

    Raises ModelError if the model needs more than full or sliding-window attention: features such as soft-capping or
    attention sinks would otherwise be silently ignored.
    """
    unsupported = [name for name in ("softcap", "s_aux", "position_bias") if extras.get(name) is not None]
    if unsupported:
        raise ModelError(f"{type(module).__name__} needs {', '.join(unsupported)} in its attention: not supported")
    if not getattr(module, "is_causal", True):
        raise ModelError(f"{type(module).__name__} looks at later tokens: not supported")
    if layout is None or dropout:
        raise ModelError(f"{type(module).__name__} was called with dropout or without strop's layout")
    layer = module.layer_idx
    assert isinstance(layer, int)
    return layout.attend(layer, query, key, value, scaling, sliding_window), None


AttentionInterface.register(ATTENTION, attend)


class KvSlab:
    """KV cache of all sequences in flight: one preallocated block per layer.

    Sequence `i` owns row `i` of each block, `[rows, Hkv, capacity, D]`. When a sequence ends, the last row moves
    into its place, so that the live rows are always the first ones. Attention
    reads rows up to their capacity, masked, and not up to their length: that view is dense,
    and a matmul on a CPU would copy any other. So capacity stays close to what is needed.
    """

    def __init__(self, rows: int) -> None:
        """`rows` is the maximum number of rows."""
        self._limit = rows
        self._rows = 0
        self._capacity = 0
        self._blocks: dict[int, tuple[Tensor, Tensor]] = {}

    @property
    def capacity(self) -> int:
        """Capacity of a row in tokens."""
        return self._capacity

    @property
    def memory_bytes(self) -> int:
        """Memory of the blocks in bytes."""
        return sum(keys.nbytes + values.nbytes for keys, values in self._blocks.values())

    def reserve(self, capacity: int, rows: int | None = None) -> None:
        """Make room for so many sequences, by default all, of `capacity` tokens; what is stored in
        their rows stays. After an error in here, for want of memory, the slab must be cleared."""
        rows = self._limit if rows is None else rows
        if capacity <= self._capacity and rows <= self._rows:
            return
        if capacity > self._capacity:
            spare = self._capacity // 8  # so that growing costs little in the long run
            self._capacity = capacity + spare + -(capacity + spare) % 16
            self._rows = rows
        else:
            self._rows = min(rows + rows // 4, self._limit)
        for layer in self._blocks:  # one after the other, so that old and new are not there twice
            self._blocks[layer] = self._grown(self._blocks[layer][0]), self._grown(self._blocks[layer][1])

    def _grown(self, block: Tensor) -> Tensor:
        _, heads, length, width = block.shape
        grown = block.new_zeros(self._rows, heads, self._capacity, width)
        grown[: len(block), :, :length] = block[: self._rows]
        return grown

    def block(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """The blocks of a layer, created on first use."""
        if layer not in self._blocks:
            # Zeros, not raw memory: a hidden key still meets the query, and NaN would survive its mask.
            self._blocks[layer] = (
                key.new_zeros(self._rows, key.shape[1], self._capacity, key.shape[-1]),
                value.new_zeros(self._rows, value.shape[1], self._capacity, value.shape[-1]),
            )
        return self._blocks[layer]

    def move(self, source: int, target: int, length: int) -> None:
        """Copy the first `length` tokens of one row over another."""
        for keys, values in self._blocks.values():
            keys[target, :, :length] = keys[source, :, :length]
            values[target, :, :length] = values[source, :, :length]

    def clear(self) -> None:
        """Free the memory."""
        self._blocks.clear()
        self._capacity = self._rows = 0


class PackedLayout:
    """Prompts and their completions in one flat row: all prompts, then all completions.

    Every completion attends to its own prompt and to itself, never to its siblings, so one
    pass over a prompt serves its whole group. Attention runs over short sequences, `prompt`
    and `prompt + completion`, and not over one dense mask of everything with everything.
    """

    def __init__(
        self,
        prompt_lengths: Sequence[int],
        completion_lengths: Sequence[int],
        owners: Sequence[int],
        device: torch.device,
    ) -> None:
        """`owners[c]` is the prompt that completion `c` continues; a completion may have no tokens."""
        self._prompts = _Ragged(prompt_lengths, device)
        self._completions = _Ragged(completion_lengths, device)
        self._owners = torch.tensor(owners, dtype=torch.long, device=device)
        prompt_keys = self._prompts.positions(start=0)
        own_keys = self._completions.positions(start=self._prompts.lengths[self._owners])
        self._prompt_mask = _Mask(prompt_keys, prompt_keys)
        self._completion_mask = _Mask(own_keys, torch.cat([prompt_keys[self._owners], own_keys], dim=1))
        flat = torch.cat([self._prompts.pack(prompt_keys), self._completions.pack(own_keys)])
        self.positions = flat[None]

    def release(self) -> None:
        """Free the masks, whose size is quadratic in the length. The next forward pass recreates them."""
        self._prompt_mask.release()
        self._completion_mask.release()

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float, window: int | None) -> Tensor:
        split = self._prompts.total
        query_THD, key_THD, value_THD = (x[0].transpose(0, 1) for x in (query, key, value))
        key_P, value_P = self._prompts.pad(key_THD[:split]), self._prompts.pad(value_THD[:split])
        output_P = _attention(self._prompts.pad(query_THD[:split]), key_P, value_P, self._prompt_mask, scale, window)
        if not self._completions.total:
            return self._prompts.pack(output_P)[None]
        key_C = torch.cat([key_P.index_select(0, self._owners), self._completions.pad(key_THD[split:])], dim=1)
        value_C = torch.cat([value_P.index_select(0, self._owners), self._completions.pad(value_THD[split:])], dim=1)
        query_C = self._completions.pad(query_THD[split:])
        output_C = _attention(query_C, key_C, value_C, self._completion_mask, scale, window)
        return torch.cat([self._prompts.pack(output_P), self._completions.pack(output_C)])[None]


class PrefillLayout:
    """Prompts in one flat row; each prompt's keys and values go to the slab rows of its group."""

    def __init__(
        self, prompt_lengths: Sequence[int], rows: Sequence[Sequence[int]], slab: KvSlab, device: torch.device
    ) -> None:
        """`rows[i]` are the slab rows of prompt `i`."""
        self._packed = PackedLayout(prompt_lengths, (), (), device)
        self._spans = list(zip(accumulate(prompt_lengths, initial=0), prompt_lengths, rows, strict=False))
        self._slab = slab
        self.positions = self._packed.positions

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float, window: int | None) -> Tensor:
        keys, values = self._slab.block(layer, key, value)
        for start, length, rows in self._spans:
            keys[rows, :, :length] = key[0, :, start : start + length]
            values[rows, :, :length] = value[0, :, start : start + length]
        if window is None and max(length for _, length, _ in self._spans) > _DENSE_PROMPT:
            return self._one_by_one(query, key, value, scale)
        return self._packed.attend(layer, query, key, value, scale, window)

    def _one_by_one(self, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        outputs = []
        for start, length, _ in self._spans:
            q, k, v = (x[:, :, start : start + length] for x in (query, key, value))
            outputs.append(scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale, enable_gqa=True))
        return torch.cat(outputs, dim=2).transpose(1, 2)


class DecodeLayout:
    """One new token for each of the first `n` rows of a slab."""

    def __init__(self, lengths: Sequence[int], slab: KvSlab, device: torch.device) -> None:
        """`lengths[i]` is the number of tokens that row `i` holds, the new one not counted."""
        self._rows = torch.arange(len(lengths), device=device)
        self._lengths = torch.tensor(lengths, dtype=torch.long, device=device)
        self._slab = slab
        self._masks: dict[int | None, Tensor] = {}
        self.positions = self._lengths[:, None]

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float, window: int | None) -> Tensor:
        keys, values = self._slab.block(layer, key, value)
        keys[self._rows, :, self._lengths] = key[:, :, 0]
        values[self._rows, :, self._lengths] = value[:, :, 0]
        count, heads, _, width = query.shape
        grouped = (query * scale).view(count, key.shape[1], -1, width)
        scores = grouped @ keys[:count].transpose(-1, -2)
        weights = torch.softmax(scores + self._mask(window, scores.dtype), dim=-1)
        return (weights @ values[:count]).view(count, 1, heads, -1)

    def _mask(self, window: int | None, dtype: torch.dtype) -> Tensor:
        """Additive mask `[n, 1, 1, capacity]`: zero where a row may attend, minus infinity elsewhere."""
        if window not in self._masks:
            distance = self._lengths[:, None] - torch.arange(self._slab.capacity, device=self._lengths.device)
            self._masks[window] = _additive(_visible(distance, window), dtype)[:, None, None]
        return self._masks[window]


class _Ragged:
    """Sequences of different lengths: flat `[t, ...]`, or padded on the right `[R, width, ...]`."""

    def __init__(self, lengths: Sequence[int], device: torch.device) -> None:
        self.lengths = torch.tensor(lengths, dtype=torch.long, device=device)
        self.total = sum(lengths)
        self._width = max(lengths, default=0)
        self._real = torch.arange(self._width, device=device) < self.lengths[:, None]
        self._places = self._real.flatten().nonzero()[:, 0]

    def pad(self, flat: Tensor) -> Tensor:
        padded = _Scatter.apply(flat, self._places, self._real.numel())  # type: ignore[no-untyped-call]
        return padded.view(*self._real.shape, *flat.shape[1:])  # type: ignore[no-any-return]

    def pack(self, padded: Tensor) -> Tensor:
        return _Gather.apply(padded.flatten(0, 1), self._places)  # type: ignore[no-any-return, no-untyped-call]

    def positions(self, start: Tensor | int) -> Tensor:
        """[R, width] positions that count from `start`; far out of sight where padded."""
        count = torch.arange(self._width, device=self.lengths.device)
        first = start[:, None] if isinstance(start, Tensor) else start
        return torch.where(self._real, first + count, _PADDING)


# A padded key stands after every query, so that no real token sees it; a padded query sees its
# own key at least, so that no softmax runs over nothing (NaN would reach the gradient).
_PADDING = 2**40


class _Scatter(torch.autograd.Function):
    """Rows of `flat` to the given places of a zero tensor. The places are unique, so that the
    backward is a plain gather: indexing's own backward would add rows up one by one."""

    @staticmethod
    def forward(ctx: Any, flat: Tensor, places: Tensor, size: int) -> Tensor:
        ctx.save_for_backward(places)
        return flat.new_zeros(size, *flat.shape[1:]).index_copy_(0, places, flat)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (places,) = ctx.saved_tensors
        return grad.index_select(0, places), None, None


class _Gather(torch.autograd.Function):
    """The inverse of `_Scatter`."""

    @staticmethod
    def forward(ctx: Any, padded: Tensor, places: Tensor) -> Tensor:
        ctx.save_for_backward(places)
        ctx.size = padded.shape[0]
        return padded.index_select(0, places)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (places,) = ctx.saved_tensors
        return grad.new_zeros(ctx.size, *grad.shape[1:]).index_copy_(0, places, grad), None


class _Mask:
    """What queries `[R, L]` see of keys `[R, S]`, both given by position."""

    def __init__(self, queries: Tensor, keys: Tensor) -> None:
        self._queries, self._keys = queries, keys
        self._cache: dict[tuple[int | None, int, torch.dtype], Tensor] = {}

    def release(self) -> None:
        self._cache.clear()

    def folded(self, window: int | None, repeats: int, dtype: torch.dtype) -> Tensor:
        """[R, 1, repeats * L, S] additive mask; made once, used by every layer."""
        key = window, repeats, dtype
        if key not in self._cache:
            distance = self._queries[:, :, None] - self._keys[:, None, :]
            mask = _additive(_visible(distance, window), dtype)
            self._cache[key] = mask.repeat(1, repeats, 1)[:, None]
        return self._cache[key]


def _visible(distance: Tensor, window: int | None) -> Tensor:
    """Causal: a key at or before the query, and less than a window away."""
    visible = distance >= 0
    return visible if window is None else visible & (distance < window)


def _additive(visible: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.zeros(visible.shape, dtype=dtype, device=visible.device).masked_fill_(~visible, float("-inf"))


def _attention(query: Tensor, key: Tensor, value: Tensor, mask: _Mask, scale: float, window: int | None) -> Tensor:
    """Query `[R, L, H, D]`, key `[R, S, Hkv, D]`, value `[R, S, Hkv, E]` to the output `[R, L, H, E]`.

    The query heads that share a key head are folded into the query length, so that keys and
    values are never repeated.
    """
    rows, length, heads, width = query.shape
    kv_heads = key.shape[2]
    repeats = heads // kv_heads
    folded = query.view(rows, length, kv_heads, repeats, width).permute(0, 2, 3, 1, 4)
    folded = folded.reshape(rows, kv_heads, repeats * length, width)
    keys, values = key.transpose(1, 2), value.transpose(1, 2)
    bias = mask.folded(window, repeats, query.dtype)
    if query.device.type == "cpu" and query.dtype == torch.bfloat16 and length * key.shape[1] <= _MATMUL_SCORES:
        output = torch.softmax((folded * scale) @ keys.transpose(-1, -2) + bias, dim=-1) @ values
    else:
        output = scaled_dot_product_attention(folded, keys, values, attn_mask=bias, scale=scale)
    output = output.view(rows, kv_heads, repeats, length, -1).permute(0, 3, 1, 2, 4)
    return output.reshape(rows, length, heads, -1)
