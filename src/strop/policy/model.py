"""A policy: a causal language model with its tokenizer, run with strop's attention.

Computes hidden states and logits from token ids and detects unsupported models. Independent of rewards, losses and
all files except weights.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import torch
from peft import PeftConfig, PeftModel
from safetensors import SafetensorError
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from strop.errors import ModelError
from strop.policy.attention import ATTENTION, DecodeLayout, KvSlab, Layout, PackedLayout, PrefillLayout
from strop.policy.body import TOLERANCE, Body, ModuleBody, build_body, relative_difference
from strop.policy.fetch import resolve
from strop.policy.linear import FrozenWeights, PackedWeight
from strop.policy.lora import use_fast_layers


@dataclass
class Policy:
    """A model to sample from and to train."""

    model: PreTrainedModel | PeftModel
    tokenizer: PreTrainedTokenizerBase
    name: str
    """Name given by the user."""
    source: str
    """Folder or Hugging Face id of its frozen weights."""
    recompute: bool = False
    """Recompute activations in the backward pass to save memory."""
    frozen: FrozenWeights = field(default_factory=FrozenWeights)
    """Matrices of the frozen weights, also for the policies that share them: see `attach`."""
    version: int = 0
    """Version of the weights used for sampling: 0 before training, then as published by the learner."""

    @property
    def base(self) -> PreTrainedModel:
        """The transformers model, including adapters."""
        return self.model.get_base_model() if isinstance(self.model, PeftModel) else self.model

    @property
    def device(self) -> torch.device:
        return self.base.device  # type: ignore[no-any-return]

    @property
    def head(self) -> Tensor:
        """Output matrix `[V, d]`."""
        return self.base.get_output_embeddings().weight  # type: ignore[no-any-return]

    @property
    def eos_ids(self) -> frozenset[int]:
        """Every id that ends a turn: some models have several."""
        ids = self.base.generation_config.eos_token_id if self.base.generation_config else None
        ids = self.base.config.eos_token_id if ids is None else ids
        ids = self.tokenizer.eos_token_id if ids is None else ids
        return frozenset(ids if isinstance(ids, list) else () if ids is None else [ids])

    @property
    def max_length(self) -> int | None:
        """Context length; None if the configuration has no limit."""
        config = self.base.config
        rope = getattr(config, "rope_parameters", None) or {}
        if rope.get("rope_type") == "longrope":
            # Beyond that LongRoPE rotates all positions by other angles, earlier ones included.
            return int(rope["original_max_position_embeddings"])
        return getattr(config, "max_position_embeddings", None)

    @cached_property
    def _body(self) -> Body:
        return build_body(self.base, self.name, self.recompute, self.frozen)

    @cached_property
    def _packed_head(self) -> PackedWeight:
        return PackedWeight(self.head.detach()) if self.head.requires_grad else self.frozen.matrix([self.head]).packed

    def hidden(self, ids: Tensor, layout: Layout) -> Tensor:
        """Final hidden states `[B, T, d]` of ids `[B, T]` that stand as the layout says."""
        return self._body.hidden(ids, layout)

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits `[..., V]` for sampling, without gradient, in the model's type."""
        return self._packed_head.product(hidden)

    def refresh(self) -> None:
        """Drop values derived from the weights, after training has changed them."""
        self._body.refresh()
        if self.head.requires_grad:
            self.__dict__.pop("_packed_head", None)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of the ids, without special tokens."""
        return self.tokenizer.decode(ids, skip_special_tokens=True)  # type: ignore[no-any-return]

    def trainable(self) -> list[nn.Parameter]:
        """Parameters that training changes, in a stable order."""
        return [parameter for parameter in self.model.parameters() if parameter.requires_grad]


def pick_device(wanted: str) -> torch.device:
    """Resolve `auto`, `cpu` or `cuda`. Raises ModelError if a GPU is requested but not available."""
    available = torch.cuda.is_available()
    if wanted == "cuda" and not available:
        raise ModelError('device = "cuda", but torch sees no GPU; use "auto" or "cpu"', param="device")
    return torch.device("cuda" if available and wanted != "cpu" else "cpu")


def fast_dtype(device: torch.device) -> torch.dtype:
    """bf16 where the hardware multiplies it natively: elsewhere a CPU emulates it, slower than fp32."""
    if device.type == "cuda":
        return torch.bfloat16
    native = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return torch.bfloat16 if native else torch.float32


def cast_parameters(model: nn.Module, dtype: torch.dtype) -> None:
    """Bring the parameters to a type, in place. Buffers keep theirs: in bf16 the frequencies of
    rotary embeddings would turn every position by a wrong angle."""
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype)


def load_policy(source: str, name: str, device: torch.device, dtype: torch.dtype) -> Policy:
    """Load a folder with full weights or an adapter, for use with strop's attention.

    Raises ModelError if it cannot be loaded or is not supported by strop's attention.
    """
    try:
        if Path(source, "adapter_config.json").is_file():
            return _load_adapter(source, name, device, dtype)
        model = AutoModelForCausalLM.from_pretrained(source, dtype=dtype, attn_implementation=ATTENTION)
        tokenizer = AutoTokenizer.from_pretrained(source)
    except (OSError, ValueError, SafetensorError) as error:
        raise ModelError(f"{name}: cannot be loaded from {source}: {error}", param="model") from error
    except KeyError as error:  # a model that looks its attention up in a table of its own
        if error.args != (ATTENTION,):
            raise
        message = f"{name}: the model does not let its attention be replaced: not supported"
        raise ModelError(message, param="model") from error
    policy = Policy(model.to(device).requires_grad_(False).eval(), tokenizer, name, source)
    check_support(policy)
    return policy


def _load_adapter(source: str, name: str, device: torch.device, dtype: torch.dtype) -> Policy:
    config = use_fast_layers(PeftConfig.from_pretrained(source))
    base = load_policy(resolve(str(config.base_model_name_or_path)), name, device, dtype)
    model = PeftModel.from_pretrained(base.model, source, config=config, is_trainable=False)
    return replace(base, model=model.eval())


def attach(base: Policy, source: str, name: str) -> Policy:
    """A policy that is `base` with the adapter in the folder `source`.

    The weights of the base exist once, in memory too; `base` itself goes on without the adapter.
    Raises ModelError if the adapter cannot be loaded or is not supported.
    """
    tensors = [*base.base.parameters(), *base.base.buffers()]
    shell = copy.deepcopy(base.base, {id(tensor): tensor for tensor in tensors})  # modules of its own
    try:
        config = use_fast_layers(PeftConfig.from_pretrained(source))
        model = PeftModel.from_pretrained(shell, source, config=config, is_trainable=False)
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        raise ModelError(f"{name}: the adapter in {source} does not fit {base.name}: {error}", param="model") from error
    policy = replace(base, model=model.eval(), name=name, source=source)
    check_support(policy, base.frozen)
    return policy


@torch.inference_mode()
def check_support(policy: Policy, frozen: FrozenWeights | None = None) -> None:
    """Run a few tokens to verify that the model matches strop's assumptions.

    `frozen` has the matrices of a base that is shared: they are not created again for the trial.
    Raises ModelError naming what it does otherwise: attention of another kind, or an output
    head that is more than one matrix.
    """
    base = policy.base
    kind = type(base).__name__
    if not getattr(base, "_supports_attention_backend", False):
        raise ModelError(f"{policy.name}: {kind} does not let its attention be replaced: not supported")
    if not hasattr(base.config, "vocab_size"):
        raise ModelError(
            f"{policy.name}: {kind} takes more than text (images or sound): not supported; use a text-only model"
        )
    head = base.get_output_embeddings()
    if not isinstance(head, nn.Linear) or head.bias is not None:
        raise ModelError(f"{policy.name}: the output head of {kind} is not a plain matrix: not supported")
    try:
        own, replaced, found = _three_ways(base, head)
        _check_logits(policy.name, kind, own, replaced, found)
        body = build_body(base, policy.name, frozen=frozen)
        packed, decoded = _packed_and_decoded(body, head, base)
    except ModelError as error:
        named = error.message.startswith(f"{policy.name}: ")
        raise error if named else ModelError(f"{policy.name}: {error.message}") from error
    except torch.OutOfMemoryError:
        raise
    except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise ModelError(f"{policy.name}: {kind} does not run through strop's attention: {error}") from error
    for logits in (packed, decoded):
        if relative_difference(logits, own[:, -logits.shape[1] :]) > TOLERANCE[own.dtype]:
            raise ModelError(f"{policy.name}: {kind} does not decode with keys and values alone: not supported")


def _check_logits(name: str, kind: str, own: Tensor, replaced: Tensor, found: Tensor) -> None:
    if relative_difference(found, replaced) > 1e-3:  # the same products: what differs comes after them
        raise ModelError(f"{name}: {kind} scales or caps its logits: not supported")
    if relative_difference(replaced, own) > TOLERANCE[own.dtype]:
        raise ModelError(f"{name}: {kind} has an attention of its own: not supported")


_TRIAL = 8
"""Tokens that a model is tried with."""


def _trial_ids(base: PreTrainedModel) -> Tensor:
    return torch.arange(_TRIAL, device=base.device)[None] % base.config.vocab_size  # type: ignore[no-any-return]


def _packed_and_decoded(body: Body, head: nn.Linear, base: PreTrainedModel) -> tuple[Tensor, Tensor]:
    """Logits of the second half of the tokens: as training packs a completion behind its prompt, and as
    sampling gets them, one by one after a prefill."""
    ids, half = _trial_ids(base), _TRIAL // 2
    packed = body.hidden(ids, PackedLayout([half], [half], [0], base.device))[:, half:]
    slab = KvSlab(1)
    slab.reserve(_TRIAL)
    body.hidden(ids[:, :half], PrefillLayout([half], [[0]], slab, base.device))
    steps = [
        body.hidden(ids[:, place : place + 1], DecodeLayout([place], slab, base.device))
        for place in range(half, _TRIAL)
    ]
    return head(packed), head(torch.cat(steps, dim=1))


def _three_ways(base: PreTrainedModel, head: nn.Linear) -> tuple[Tensor, Tensor, Tensor]:
    """Logits of a few tokens: with transformers' attention, with strop's, and from strop's hidden states."""
    ids = _trial_ids(base)
    base.set_attn_implementation("eager")
    try:
        own = base(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False).logits
    finally:
        base.set_attn_implementation(ATTENTION)
    layout = PackedLayout([ids.shape[1]], (), (), base.device)
    replaced = base(input_ids=ids, position_ids=layout.positions, use_cache=False, layout=layout).logits
    return own, replaced, head(ModuleBody(base).hidden(ids, layout))
