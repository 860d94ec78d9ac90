"""Prepare the policy and reference model of a run, new or from a checkpoint.

What is trained: an adapter on a frozen base, or all weights. What the KL penalty holds it
against: the model it started from. If that was an adapter itself, training goes on with a
copy of the adapter, and the original stays the reference.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch
from peft import PeftConfig, PeftModel, get_peft_model
from torch import nn

from strop.config import LoraConfig, RunConfig
from strop.errors import ModelError
from strop.policy.fetch import Say, resolve
from strop.policy.lora import lora_config, use_fast_layers
from strop.policy.model import Policy, cast_parameters, fast_dtype, load_policy, pick_device

_TRAINED = "default"  # the name that PEFT gives to an only adapter
_START = "start"


class AdapterReference:
    """The reference of a LoRA policy: the same model with its adapter off, or with the adapter
    that training started from."""

    def __init__(self, policy: Policy) -> None:
        assert isinstance(policy.model, PeftModel)
        self._policy, self._model = policy, policy.model

    @contextmanager
    def scoring(self) -> Iterator[Policy]:
        """The initial policy, inside the block only."""
        if _START not in self._model.peft_config:
            with self._model.disable_adapter():
                yield self._policy
            return
        self._switch(_START)
        try:
            yield self._policy
        finally:
            self._switch(_TRAINED)

    def _switch(self, adapter: str) -> None:
        self._model.set_adapter(adapter)
        self._policy.refresh()


class FrozenReference:
    """The reference model of full training: a frozen copy of the initial weights."""

    def __init__(self, policy: Policy, dtype: torch.dtype) -> None:
        model = copy.deepcopy(policy.model).requires_grad_(False)
        cast_parameters(model, dtype)
        self._policy = replace(policy, model=model.eval())

    @contextmanager
    def scoring(self) -> Iterator[Policy]:
        """The frozen copy."""
        yield self._policy


Reference = AdapterReference | FrozenReference


def prepare(config: RunConfig, checkpoint: Path | None, say: Say) -> tuple[Policy, Reference | None]:
    """The policy of a run and its reference model; None if the KL coefficient is 0.

    `checkpoint` is the folder to resume from. `say` receives status lines.
    """
    device = pick_device(config.device)
    source = resolve(config.model, say)
    with_reference = config.train.kl_coefficient > 0
    recompute = config.train.gradient_checkpointing
    if config.train.method == "full":
        policy, reference = _prepare_full(config, source, checkpoint, device, with_reference)
        return replace(policy, recompute=recompute), reference
    base = load_policy(source, config.model, device, fast_dtype(device))
    policy = replace(adapt(base, config.lora, config.seed, checkpoint, source), recompute=recompute)
    return policy, AdapterReference(policy) if with_reference else None


def adapt(base: Policy, settings: LoraConfig, seed: int, checkpoint: Path | None, source: str) -> Policy:
    """A trainable adapter on a frozen base: from a checkpoint, a copy of the base's own, or a new one, which has no
    effect until it is trained."""
    if isinstance(base.model, PeftModel):
        trained = str(checkpoint or source)
        base.model.load_adapter(source, _START, config=_adapter_config(source), is_trainable=False)
        base.model.set_adapter(_START)  # PEFT wants one that is active at any time
        base.model.delete_adapter(_TRAINED)
        base.model.load_adapter(trained, _TRAINED, config=_adapter_config(trained), is_trainable=True)
        base.model.set_adapter(_TRAINED)
        return base
    base.model.requires_grad_(False)
    if checkpoint:
        folder = str(checkpoint)
        model = PeftModel.from_pretrained(base.model, folder, config=_adapter_config(folder), is_trainable=True)
    else:
        torch.manual_seed(seed)
        model = _fresh_adapter(base, settings)
    return replace(base, model=model.eval())


def _fresh_adapter(base: Policy, settings: LoraConfig) -> PeftModel:
    """Raises ModelError if a target is not a layer of the model; PEFT only requires one match."""
    linear = _linear_layers(base)
    # Not PEFT's own "all-linear": on models with experts it adapts their stacked weights too, and
    # forms the full change of every expert in every forward.
    targets = linear if isinstance(settings.targets, str) else settings.targets
    _refuse_tied_embeddings(base, targets)
    try:
        model = get_peft_model(base.model, lora_config(settings.r, settings.alpha, targets))
        if missing := _missing_targets(model, targets):
            raise ValueError(f"no layer is called {missing[0]}")
    except ValueError as error:
        raise ModelError(
            f"{base.name}: lora.targets: {error}; the linear layers are {', '.join(linear)}",
            param="lora.targets",
        ) from error
    return model


def _refuse_tied_embeddings(base: Policy, targets: Sequence[str]) -> None:
    """ModelError when a target is the embeddings, and they are the output head too: what is merged
    and exported would change the head, which training does not."""
    embeddings, head = base.base.get_input_embeddings(), base.base.get_output_embeddings()
    if embeddings.weight is not head.weight:
        return
    for name, layer in base.base.named_modules():
        if layer is embeddings and any(f".{name}".endswith(f".{target}") for target in targets):
            raise ModelError(
                f"{base.name}: lora.targets: {name} shares its weights with the output head, which would not be "
                "trained; name layers inside the model",
                param="lora.targets",
            )


def _linear_layers(policy: Policy) -> tuple[str, ...]:
    """Names of the linear layers without their path, except the output head."""
    head = policy.base.get_output_embeddings()
    layers = [(name, layer) for name, layer in policy.base.named_modules() if isinstance(layer, nn.Linear)]
    return tuple(sorted({name.rpartition(".")[2] for name, layer in layers if layer is not head}))


def _missing_targets(model: PeftModel, targets: Sequence[str]) -> list[str]:
    """Targets that got no adapter. Stacked experts get theirs under other names: not looked at."""
    if model.peft_config[_TRAINED].target_parameters:
        return []
    adapted = [f".{name}" for name, weight in model.named_parameters() if weight.requires_grad]
    return [target for target in targets if not any(f".{target}." in name for name in adapted)]


def _adapter_config(folder: str) -> PeftConfig:
    return use_fast_layers(PeftConfig.from_pretrained(folder))


def _prepare_full(
    config: RunConfig, source: str, checkpoint: Path | None, device: torch.device, with_reference: bool
) -> tuple[Policy, FrozenReference | None]:
    """All weights in fp32, as the optimizer needs them; it makes the copy that computes."""
    start = load_policy(source, config.model, device, torch.float32)
    if isinstance(start.model, PeftModel):
        start = replace(start, model=start.model.merge_and_unload(safe_merge=True))
    reference = FrozenReference(start, fast_dtype(device)) if with_reference else None
    policy = load_policy(str(checkpoint), config.model, device, torch.float32) if checkpoint else start
    policy.model.requires_grad_(True)
    return policy, reference
