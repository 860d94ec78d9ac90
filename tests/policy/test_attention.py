"""Attention by layout, against attention over one dense mask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from strop.errors import ModelError
from strop.policy.attention import DecodeLayout, KvSlab, PackedLayout, PrefillLayout, attend

CPU = torch.device("cpu")
HEADS, KV_HEADS, WIDTH, SCALE = 6, 2, 8, 0.3

windows = st.none() | st.integers(1, 6)


def tokens(count: int, seed: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor]:
    """Query, key and value as a model hands them over, `[1, heads, count, width]`."""
    generator = torch.Generator().manual_seed(seed)
    query, key, value = (
        torch.randn(1, heads, count, WIDTH, generator=generator) for heads in (HEADS, KV_HEADS, KV_HEADS)
    )
    return query.to(dtype), key.to(dtype), value.to(dtype)


def dense(query: Tensor, key: Tensor, value: Tensor, visible: Tensor) -> Tensor:
    """Softmax attention in fp32 with an explicit mask `[T, S]`; output `[1, T, heads, width]`."""
    query, key, value = query.float(), key.float(), value.float()
    repeats = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(repeats, dim=1), value.repeat_interleave(repeats, dim=1)
    scores = (query @ key.transpose(-1, -2) * SCALE).masked_fill(~visible, float("-inf"))
    return (scores.softmax(-1) @ value).transpose(1, 2)


def packed_mask(
    prompts: Sequence[int], completions: Sequence[int], owners: Sequence[int], window: int | None
) -> Tensor:
    """What each token of a packed row may see, worked out token by token."""
    places = [("prompt", number, place) for number, length in enumerate(prompts) for place in range(length)]
    places += [
        ("completion", number, prompts[owners[number]] + place)
        for number, length in enumerate(completions)
        for place in range(length)
    ]

    def sees(looker: tuple[str, int, int], seen: tuple[str, int, int]) -> bool:
        own = looker[:2] == seen[:2]
        prompt = looker[0] == "completion" and seen[:2] == ("prompt", owners[looker[1]])
        distance = looker[2] - seen[2]
        return (own or prompt) and distance >= 0 and (window is None or distance < window)

    return torch.tensor([[sees(looker, seen) for seen in places] for looker in places])


@st.composite
def packings(draw: st.DrawFn) -> tuple[list[int], list[int], list[int]]:
    """Lengths of prompts and completions, and whose completion each is; completions may be empty."""
    prompts = draw(st.lists(st.integers(1, 9), min_size=1, max_size=4))
    owners = draw(st.lists(st.integers(0, len(prompts) - 1), max_size=6))
    return prompts, [draw(st.integers(0, 9)) for _ in owners], owners


@settings(deadline=None, max_examples=40)
@given(packing=packings(), window=windows)
def test_packed_attention_is_attention_over_the_dense_block_mask(
    packing: tuple[list[int], list[int], list[int]], window: int | None
) -> None:
    prompts, completions, owners = packing
    states = tokens(sum(prompts) + sum(completions), seed=1)
    found = PackedLayout(prompts, completions, owners, CPU).attend(0, *states, SCALE, window)
    torch.testing.assert_close(found, dense(*states, packed_mask(prompts, completions, owners, window)))


@settings(deadline=None, max_examples=40)
@given(packing=packings(), window=windows)
def test_gradients_of_packed_attention_are_finite_and_those_of_the_dense_form(
    packing: tuple[list[int], list[int], list[int]], window: int | None
) -> None:
    prompts, completions, owners = packing
    states = tokens(sum(prompts) + sum(completions), seed=2)
    for state in states:
        state.requires_grad_()
    slope = torch.randn(1, states[0].shape[2], HEADS, WIDTH, generator=torch.Generator().manual_seed(3))
    layout = PackedLayout(prompts, completions, owners, CPU)
    found = torch.autograd.grad(layout.attend(0, *states, SCALE, window), states, slope)
    mask = packed_mask(prompts, completions, owners, window)
    expected = torch.autograd.grad(dense(*states, mask), states, slope)
    for gradient, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(gradient, wanted, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("length", [40, 300], ids=["two matmuls", "the fused kernel"])
def test_packed_attention_in_bf16_is_close_to_fp32(length: int) -> None:
    prompts, completions, owners = [length, 7], [length, 5], [0, 1]
    states = tokens(sum(prompts) + sum(completions), seed=4, dtype=torch.bfloat16)
    found = PackedLayout(prompts, completions, owners, CPU).attend(0, *states, SCALE, None)
    expected = dense(*states, packed_mask(prompts, completions, owners, None))
    assert found.dtype == torch.bfloat16
    assert float((found.float() - expected).abs().max()) < 0.03


def test_positions_of_a_completion_go_on_from_its_own_prompt() -> None:
    layout = PackedLayout([3, 2], [2, 0, 3], [1, 0, 0], CPU)
    assert layout.positions.tolist() == [[0, 1, 2, 0, 1, 2, 3, 3, 4, 5]]
    assert layout.positions.dtype == torch.long


def test_siblings_do_not_see_each_other() -> None:
    query, key, value = tokens(4 + 3 + 3, seed=5)
    layout = PackedLayout([4], [3, 3], [0, 0], CPU)
    before = layout.attend(0, query, key, value, SCALE, None)
    key[:, :, 7:], value[:, :, 7:] = 9.0, 9.0
    after = layout.attend(0, query, key, value, SCALE, None)
    assert torch.equal(before[:, :7], after[:, :7])
    assert not torch.equal(before[:, 7:], after[:, 7:])


def test_values_may_be_narrower_than_keys() -> None:
    query, key, value = tokens(3 + 2, seed=6)
    found = PackedLayout([3], [2], [0], CPU).attend(0, query, key, value[..., :5], SCALE, None)
    torch.testing.assert_close(found, dense(query, key, value[..., :5], packed_mask([3], [2], [0], None)))


def fill(slab: KvSlab, lengths: Sequence[int], seed: int) -> tuple[Tensor, Tensor]:
    """Prefill a slab, one prompt a row; keys and values of the flat row."""
    query, key, value = tokens(sum(lengths), seed)
    layout = PrefillLayout(lengths, [[row] for row in range(len(lengths))], slab, CPU)
    layout.attend(0, query, key, value, SCALE, None)
    return key, value


@settings(deadline=None, max_examples=40)
@given(lengths=st.lists(st.integers(1, 12), min_size=1, max_size=5), window=windows, stale=st.booleans())
def test_decoding_is_the_last_row_of_attention_over_the_whole_sequence(
    lengths: list[int], window: int | None, stale: bool
) -> None:
    slab = KvSlab(6)
    slab.reserve(13)
    if stale:  # rows that longer sequences have left behind
        fill(slab, [13] * 6, seed=7)
    key, value = fill(slab, lengths, seed=8)
    query, new_key, new_value = (x.transpose(0, 2) for x in tokens(len(lengths), seed=9))
    found = DecodeLayout(lengths, slab, CPU).attend(0, query, new_key, new_value, SCALE, window)
    start = 0
    for row, length in enumerate(lengths):
        keys = torch.cat([key[:, :, start : start + length], new_key[row : row + 1]], dim=2)
        values = torch.cat([value[:, :, start : start + length], new_value[row : row + 1]], dim=2)
        distance = length - torch.arange(length + 1)
        visible = torch.ones(length + 1, dtype=torch.bool) if window is None else distance < window
        expected = dense(query[row : row + 1], keys, values, visible[None])
        torch.testing.assert_close(found[row : row + 1], expected)
        start += length


def test_decoding_stores_the_new_keys_where_the_sequence_goes_on() -> None:
    slab = KvSlab(2)
    slab.reserve(8)
    fill(slab, [3, 5], seed=10)
    query, key, value = (x.transpose(0, 2) for x in tokens(2, seed=11))
    layout = DecodeLayout([3, 5], slab, CPU)
    layout.attend(0, query, key, value, SCALE, None)
    keys, values = slab.block(0, key, value)
    assert layout.positions.tolist() == [[3], [5]]
    for row, place in enumerate([3, 5]):
        assert torch.equal(keys[row, :, place], key[row, :, 0])
        assert torch.equal(values[row, :, place], value[row, :, 0])


def test_prefill_hands_a_prompt_to_every_row_of_its_group() -> None:
    slab = KvSlab(4)
    slab.reserve(6)
    query, key, value = tokens(3 + 5, seed=12)
    layout = PrefillLayout([3, 5], [[0, 2], [1, 3]], slab, CPU)
    output = layout.attend(0, query, key, value, SCALE, None)
    torch.testing.assert_close(output, dense(query, key, value, packed_mask([3, 5], [], [], None)))
    keys, _ = slab.block(0, key, value)
    for row, (start, length) in enumerate([(0, 3), (3, 5), (0, 3), (3, 5)]):
        assert torch.equal(keys[row, :, :length], key[0, :, start : start + length])


def test_long_prompts_give_what_short_ones_do_without_a_dense_mask() -> None:
    lengths = [1030, 4]  # the first is long enough for the other kernel
    slab = KvSlab(2)
    slab.reserve(max(lengths))
    query, key, value = tokens(sum(lengths), seed=12)
    output = PrefillLayout(lengths, [[0], [1]], slab, CPU).attend(0, query, key, value, SCALE, None)
    torch.testing.assert_close(output, PackedLayout(lengths, (), (), CPU).attend(0, query, key, value, SCALE, None))


def test_a_slab_keeps_what_it_holds_when_it_grows() -> None:
    slab = KvSlab(2)
    slab.reserve(5)
    key, value = fill(slab, [5], seed=13)
    slab.reserve(100)
    keys, values = slab.block(0, key, value)
    assert keys.shape[2] == values.shape[2] == slab.capacity >= 100
    assert torch.equal(keys[:1, :, :5], key)
    assert torch.equal(values[:1, :, :5], value)
    assert not keys[:, :, 5:].any() and not values[:, :, 5:].any()


def test_a_slab_grows_by_an_eighth_more_than_needed_and_never_shrinks() -> None:
    slab = KvSlab(1)
    slab.reserve(64)
    assert slab.capacity == 64
    slab.reserve(65)
    assert slab.capacity == 80  # 65 + 64 / 8, in sixteens
    slab.reserve(10)
    assert slab.capacity == 80


def test_a_new_slab_is_all_zeros() -> None:
    slab = KvSlab(3)
    slab.reserve(4)
    key = torch.full((1, KV_HEADS, 1, WIDTH), float("nan"))
    keys, values = slab.block(0, key, key)
    assert not keys.any() and not values.any()


def test_moving_a_row_copies_its_tokens_only() -> None:
    slab = KvSlab(3)
    slab.reserve(8)
    key, value = fill(slab, [2, 7, 4], seed=14)
    keys, values = slab.block(0, key, value)
    before = keys.clone()
    slab.move(2, 0, 4)
    assert torch.equal(keys[0, :, :4], before[2, :, :4])
    assert torch.equal(values[0, :, :4], value[0, :, 9:13])
    assert torch.equal(keys[0, :, 4:], before[0, :, 4:])
    assert torch.equal(keys[1:], before[1:])


def test_a_cleared_slab_starts_anew() -> None:
    slab = KvSlab(1)
    slab.reserve(8)
    fill(slab, [8], seed=15)
    slab.clear()
    assert slab.capacity == 0
    slab.reserve(3)
    key, value = fill(slab, [2], seed=16)
    keys, _ = slab.block(0, key, value)
    assert torch.equal(keys[0, :, :2], key[0])
    assert not keys[0, :, 2:].any()


class Layer(nn.Module):
    """As much of an attention module as `attend` looks at."""

    def __init__(self, is_causal: bool = True) -> None:
        super().__init__()
        self.layer_idx = 0
        self.is_causal = is_causal


@pytest.mark.parametrize(
    ("extras", "says"),
    [
        ({"softcap": 50.0}, "Layer needs softcap"),
        ({"s_aux": torch.zeros(HEADS)}, "Layer needs s_aux"),
        ({"position_bias": torch.zeros(1)}, "Layer needs position_bias"),
        ({"layout": None}, "without strop's layout"),
        ({"dropout": 0.1}, "dropout"),
    ],
)
def test_attention_that_would_be_computed_wrongly_is_refused(extras: dict[str, Any], says: str) -> None:
    arguments = {"layout": PackedLayout([2], (), (), CPU), "softcap": None} | extras
    with pytest.raises(ModelError, match=says):
        attend(Layer(), *tokens(2, seed=17), None, SCALE, **arguments)


def test_attention_to_later_tokens_is_refused() -> None:
    with pytest.raises(ModelError, match="Layer looks at later tokens"):
        attend(Layer(is_causal=False), *tokens(2, seed=18), None, SCALE, layout=PackedLayout([2], (), (), CPU))
