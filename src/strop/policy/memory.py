"""How much device memory a model takes, by its parameters and its shape. Does not import torch.

This is the one estimate: the plan of the device, the wizard and `strop models list` use it.

Full training takes 22 bytes a parameter: master weights in fp32 (4), Adam's two moments in fp32
(8), the gradient in fp32 and, before it is added up, in the compute type (4 + 2), the copy of the
weights in the compute type (2), and the reference model (2). LoRA takes the weights in the compute
type (2), which serve as reference too, and the states of the adapter: about 1 % of the parameters
with 20 bytes each (0.2). A model that only answers takes its weights in the compute type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from strop.types import Json

FULL_BYTES = 22.0
LORA_BYTES = 2.2
SERVING_BYTES = 2.0


def training_bytes(parameters: float, method: str) -> float:
    """Bytes for training, without activations; `method` is "lora" or "full"."""
    return parameters * (LORA_BYTES if method == "lora" else FULL_BYTES)


def serving_bytes(parameters: float) -> float:
    """Bytes of a model that only answers, without its cache."""
    return parameters * SERVING_BYTES


@dataclass(frozen=True)
class Shape:
    """What of a model's `config.json` memory depends on."""

    layers: int
    width: int
    kv_heads: int
    head_width: int


@dataclass(frozen=True)
class Memory:
    """Bytes that training takes at most, by what takes them."""

    weights: float
    """With gradients and optimizer state."""
    cache: float
    """Keys and values of answers that are sampled at the same time."""
    activations: float
    """Of one forward and backward."""

    @property
    def total(self) -> float:
        """Sampling and training take turns: what counts is the one that takes more."""
        return self.weights + max(self.cache, self.activations)


_ACTIVATION_BYTES = 34
"""For each token, layer and number of the model's width (Korthikanti et al., 2022)."""
_RECOMPUTED_BYTES = 2


def training_memory(
    weights: float,
    shape: Shape,
    *,
    concurrent: int,
    tokens_each: int,
    forward_tokens: int,
    recompute: bool,
) -> Memory:
    """What training takes: `weights` in bytes, with gradients and moments; `tokens_each` is the longest
    prompt with its answer."""
    cache = 2 * 2 * shape.layers * shape.kv_heads * shape.head_width * concurrent * tokens_each
    per_number = _RECOMPUTED_BYTES if recompute else _ACTIVATION_BYTES
    tokens = max(forward_tokens, tokens_each)
    return Memory(weights, float(cache), float(per_number * tokens * shape.layers * shape.width))


def shape_of(config: Mapping[str, Json]) -> Shape | None:
    """The shape that a `config.json` tells; None where it does not."""
    inner = config.get("text_config")
    given = inner if isinstance(inner, dict) else config
    try:
        layers, width, heads = (int(given[key]) for key in ("num_hidden_layers", "hidden_size", "num_attention_heads"))
        head_width = int(given.get("head_dim") or width // heads)
        return Shape(layers, width, int(given.get("num_key_value_heads") or heads), head_width)
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        return None
