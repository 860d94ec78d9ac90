"""Weights and trainer state in a folder: Hugging Face files plus the state needed to resume.

Weights are read with safetensors, everything else with `weights_only=True`: loading a checkpoint never runs code
from it.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from torch import Tensor
from transformers import PreTrainedModel

from strop.errors import CheckpointError, ModelError
from strop.policy.model import Policy, load_policy

TRAINER_STATE = "trainer_state.pt"
"""Data order and random state."""
LEARNER_STATE = "learner_state.pt"
"""State of the learner other than the weights."""


def save_weights(policy: Policy, folder: Path, weights: Mapping[str, Tensor] | None = None) -> None:
    """Write adapter or full weights with tokenizer and chat template.

    `weights` are the fp32 masters of a fully trained model, by parameter name; without them
    the model's own are written. Plain `transformers` and `peft` load the folder. Tied
    embeddings are stored once.
    """
    if isinstance(policy.model, PeftModel):
        policy.model.save_pretrained(str(folder), selected_adapters=["default"], save_embedding_layers=False)
    else:
        model = policy.model if weights is None else _with_weights(policy.model, weights)
        model.save_pretrained(str(folder))
    policy.tokenizer.save_pretrained(str(folder))


def _with_weights(model: PreTrainedModel, weights: Mapping[str, Tensor]) -> PreTrainedModel:
    """A model with the same configuration and other weights, which are not copied."""
    with torch.device("meta"):
        shell = type(model)(copy.deepcopy(model.config))
    shell.load_state_dict({**model.state_dict(), **weights}, assign=True)
    shell.tie_weights()
    shell.generation_config = model.generation_config
    return shell


def save_state(path: Path, state: dict[str, Any]) -> None:
    """Write a table of tensors and plain values."""
    torch.save(state, path)


def load_state(path: Path) -> dict[str, Any]:
    """Read what `save_state` wrote. CheckpointError for anything but plain data."""
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # damaged bytes make the reader raise almost anything
        raise CheckpointError(f"{path}: cannot be read: {type(error).__name__}: {error}") from error
    if not isinstance(state, dict):
        raise CheckpointError(f"{path}: holds a {type(state).__name__}, expected a table")
    return state


def export_merged(source: str, name: str, target: Path) -> None:
    """Write full fp32 weights with the adapter merged, for tools without adapter support.

    The sum is computed in fp32 on a fresh copy, because bf16 would lose much of the adapter.
    """
    policy = load_policy(source, name, torch.device("cpu"), torch.float32)
    if not isinstance(policy.model, PeftModel):
        raise ModelError(f"{name} has no adapter to merge: it already contains full weights")
    merged = policy.model.merge_and_unload(safe_merge=True)
    save_weights(replace(policy, model=merged), target)
