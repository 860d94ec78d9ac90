"""The body of a model: from token ids to final hidden states.

transformers keeps a model's weights, names and configuration. Most open models are made of
the same block (Llama, Mistral, Qwen2, Qwen3, SmolLM): root-mean-square norms, rotary
attention, a gated MLP. `FusedBody` runs that block with half the operations and shared
products, for training, prefill and decoding alike. Support is not decided by the model's name: the fused form must
agree with transformers on a few tokens; otherwise `ModuleBody`, which calls transformers' forward pass, is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, rms_norm
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from strop.errors import ModelError
from strop.policy.attention import Layout, PackedLayout
from strop.policy.linear import FrozenWeights, SharedInput

# Largest relative difference, in the median over positions, by which two forms of a model still
# agree. Rounding alone makes about 0.02 in bf16 and 1e-6 in fp32.
TOLERANCE = {torch.bfloat16: 0.1, torch.float16: 0.02, torch.float32: 1e-3}

# The same for the queries and keys of one layer. Over a few tokens attention adds little to the
# hidden states: there, a layer that rotates nothing would pass as one that does.
_ATTENTION_TOLERANCE = {torch.bfloat16: 0.3, torch.float16: 0.06, torch.float32: 3e-3}


class Body(Protocol):
    """A model without its output head."""

    def hidden(self, ids: Tensor, layout: Layout) -> Tensor:
        """Final hidden states `[B, T, d]` of ids `[B, T]`, with positions from the layout."""

    def refresh(self) -> None:
        """Drop values derived from weights, after the weights have changed."""


class ModuleBody:
    """A body that runs transformers' modules."""

    def __init__(self, model: PreTrainedModel, recompute: bool = False) -> None:
        """`recompute` as for `FusedBody`. transformers' own switch would turn dropout on with it."""
        self._model = model
        if recompute:
            for layer in model.modules():
                if isinstance(layer, GradientCheckpointingLayer) and "forward" not in vars(layer):
                    layer.forward = partial(_checkpointed, layer.forward)

    def hidden(self, ids: Tensor, layout: Layout) -> Tensor:
        body = self._model.base_model
        output = body(input_ids=ids, position_ids=layout.positions, use_cache=False, layout=layout)
        return output.last_hidden_state  # type: ignore[no-any-return]

    def refresh(self) -> None:
        """Nothing is derived from the weights."""


def _checkpointed(forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if torch.is_grad_enabled():
        return checkpoint(forward, *args, use_reentrant=False, **kwargs)
    return forward(*args, **kwargs)


@dataclass(frozen=True)
class LayerFacts:
    """How a layer called attention when transformers ran it."""

    scale: float
    window: int | None


class Probe(PackedLayout):
    """A layout of one short sequence that records how each layer calls attention.

    The sequence is at the end of the context length, which reveals any dependence on the distance from the start.
    """

    def __init__(self, length: int, positions: int, device: torch.device) -> None:
        super().__init__([length], (), (), device)
        self.positions = self.positions + max(positions - length, 0)
        self.layers: dict[int, LayerFacts] = {}
        self.asked: dict[int, tuple[Tensor, Tensor]] = {}
        """Query and key of each layer."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float, window: int | None) -> Tensor:
        self.layers[layer] = LayerFacts(scale, window)
        self.asked[layer] = query, key
        return super().attend(layer, query, key, value, scale, window)


class FusedBody:
    """A body of common blocks with shared products and fused norms."""

    def __init__(
        self, model: PreTrainedModel, facts: dict[int, LayerFacts], recompute: bool, frozen: FrozenWeights
    ) -> None:
        """Raises AttributeError or TypeError where the model is made otherwise. `recompute` saves
        memory in training: activations of a block are computed again in the backward pass."""
        body: Any = model.base_model
        if type(body.embed_tokens) is not nn.Embedding:
            raise TypeError("the embeddings are scaled or have an adapter")
        self._embeddings = body.embed_tokens
        self._rotary = body.rotary_emb
        self._norm = _Norm(body.norm)
        self._blocks = [_Block(layer, facts[index], frozen) for index, layer in enumerate(body.layers)]
        self._recompute = recompute

    def hidden(self, ids: Tensor, layout: Layout) -> Tensor:
        x = embedding(ids, self._embeddings.weight)
        cos, sin = self._rotary(x, layout.positions)
        half = cos.shape[-1] // 2
        # Rotation by halves, its sign folded into the sine: x cos + swap(x) [-sin, sin].
        angles = cos[:, :, None], torch.cat([-sin[..., :half], sin[..., half:]], dim=-1)[:, :, None]
        for index, block in enumerate(self._blocks):
            if self._recompute and torch.is_grad_enabled():
                x = checkpoint(block, index, x, angles, layout, use_reentrant=False)
            else:
                x = block(index, x, angles, layout)
        return self._norm(x)

    def refresh(self) -> None:
        for block in self._blocks:
            block.refresh()


class _Norm:
    """Root-mean-square norm in one kernel."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self._epsilon: float = module.variance_epsilon

    def __call__(self, x: Tensor) -> Tensor:
        weight = self._module.weight
        return rms_norm(x, weight.shape, weight, self._epsilon)


class _Block:
    """One layer: attention and MLP, each with a norm before it and a residual connection."""

    def __init__(self, layer: Any, facts: LayerFacts, frozen: FrozenWeights) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        self._facts = facts
        self._width: int = attention.head_dim
        self._before = _Norm(layer.input_layernorm)
        self._between = _Norm(layer.post_attention_layernorm)
        self._query_norm = _Norm(attention.q_norm) if hasattr(attention, "q_norm") else None
        self._key_norm = _Norm(attention.k_norm) if hasattr(attention, "k_norm") else None
        self._activation: nn.Module = mlp.act_fn
        self._heads: int = attention.config.num_attention_heads
        self._kv_heads: int = attention.config.num_key_value_heads
        self._qkv = SharedInput([attention.q_proj, attention.k_proj, attention.v_proj], frozen)
        self._output = SharedInput([attention.o_proj], frozen)
        self._gate_up = SharedInput([mlp.gate_proj, mlp.up_proj], frozen)
        self._down = SharedInput([mlp.down_proj], frozen)

    def __call__(self, index: int, x: Tensor, angles: tuple[Tensor, Tensor], layout: Layout) -> Tensor:
        x = x + self._output(self._attend(index, self._before(x), angles, layout))
        gate, up = self._gate_up(self._between(x)).chunk(2, dim=-1)
        return x + self._down(self._activation(gate) * up)

    def _attend(self, index: int, x: Tensor, angles: tuple[Tensor, Tensor], layout: Layout) -> Tensor:
        states = self._qkv(x).unflatten(-1, (-1, self._width))
        both = self._heads + self._kv_heads
        rotated, value = states[:, :, :both], states[:, :, both:]
        if self._query_norm and self._key_norm:
            parts = self._query_norm(rotated[:, :, : self._heads]), self._key_norm(rotated[:, :, self._heads :])
            rotated = torch.cat(parts, dim=2)
        cos, sin = angles
        rotated = rotated * cos + rotated.roll(self._width // 2, dims=-1) * sin
        query, key = rotated[:, :, : self._heads], rotated[:, :, self._heads :]
        output = layout.attend(
            index,
            query.transpose(1, 2),
            key.transpose(1, 2),
            value.transpose(1, 2),
            self._facts.scale,
            self._facts.window,
        )
        return output.flatten(2)

    def refresh(self) -> None:
        for product in (self._qkv, self._output, self._gate_up, self._down):
            product.refresh()


# A body that is built while sampling must also serve training: inference tensors could not.
@torch.inference_mode(False)
@torch.no_grad()
def build_body(model: PreTrainedModel, name: str, recompute: bool = False, frozen: FrozenWeights | None = None) -> Body:
    """The fastest body that reproduces the model's hidden states.

    `frozen` has the matrices of the models that share their frozen weights with this one.
    Raises ModelError, naming the layer, where the model is not made of plain or
    sliding-window attention throughout.
    """
    plain = ModuleBody(model)
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(model.config.vocab_size, (1, 16), generator=generator).to(model.device)
    positions = getattr(model.config, "max_position_embeddings", None) or 0
    probe = Probe(ids.shape[1], positions, model.device)
    expected = plain.hidden(ids, probe)
    _check_layers(model, probe, name)
    again = Probe(ids.shape[1], positions, model.device)
    try:
        fused = FusedBody(model, probe.layers, recompute, frozen or FrozenWeights())
        found = fused.hidden(ids, again)
    except (AttributeError, TypeError, RuntimeError):
        return ModuleBody(model, recompute)
    agrees = _close(found, expected, TOLERANCE) and all(
        _close(one, other, _ATTENTION_TOLERANCE)
        for layer, asked in probe.asked.items()
        for one, other in zip(again.asked[layer], asked, strict=True)
    )
    return fused if agrees else ModuleBody(model, recompute)


def _close(found: Tensor, expected: Tensor, tolerance: Mapping[torch.dtype, float]) -> bool:
    return found.shape == expected.shape and relative_difference(found, expected) < tolerance[expected.dtype]


def _check_layers(model: PreTrainedModel, probe: Probe, name: str) -> None:
    config = model.config
    kinds = getattr(config, "layer_types", None) or ["full_attention"] * config.num_hidden_layers
    for layer, kind in enumerate(kinds):
        known = kind in ("full_attention", "sliding_attention")
        if not known or layer not in probe.layers:
            raise ModelError(f"{name}: layer {layer} of {type(model).__name__} is {kind}: not supported")
        if kind == "sliding_attention" and probe.layers[layer].window is None:
            raise ModelError(f"{name}: layer {layer} of {type(model).__name__} hides its window: not supported")


def relative_difference(found: Tensor, expected: Tensor) -> float:
    """Norm of the difference over the norm of what was expected, in the median over positions:
    some models amplify rounding without bound at tokens that they never saw in training."""
    gap, size = (found.float() - expected.float()).norm(dim=-1), expected.float().norm(dim=-1)
    return float((gap / size.clamp(min=1e-12)).median())  # a padding token may come out as zeros
