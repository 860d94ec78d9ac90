"""The parameters of training: what they mean, what they may be, and what is wrong with a value."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from strop.config import parse_config
from strop.errors import ConfigError
from strop.services.drafts.draft import TABLES
from strop.types import Json

Kind = Literal["whole", "number", "choice", "switch", "list", "json"]


@dataclass(frozen=True)
class Parameter:
    """One field of the wizard."""

    key: str
    """In config.toml: `train.batch_size`."""
    label: str
    hint: str
    """What it means, and its range."""
    kind: Kind = "whole"
    options: Mapping[Json, str] | None = None
    """Of a choice."""
    empty: str = ""
    """What an empty field stands for."""
    only: Literal["", "validation", "lora"] = ""
    """Where it means anything."""

    @property
    def default(self) -> Json:
        """In config.toml."""
        return default_of(self.key)


BATCH_SIZES = (1, 2, 4, 8, 16, 32)

MAIN = (
    Parameter(
        "train.batch_size",
        "Batch size",
        "Prompts per step, at least 1. Larger batches give a less noisy gradient and slower steps.",
        "choice",
        {size: str(size) for size in BATCH_SIZES},
    ),
    Parameter("train.epochs", "Epochs", "Passes over the training rows, at least 1."),
    Parameter(
        "train.samples_per_prompt",
        "Samples per prompt",
        "Completions per prompt (group size), at least 2. Larger groups give a better baseline and take longer.",
    ),
    Parameter(
        "sampling.temperature",
        "Temperature",
        "Sampling temperature, above 0, at most 2. Higher values explore more.",
        "number",
    ),
    Parameter("sampling.max_prompt_tokens", "Max prompt length", "In tokens, at least 1. Longer prompts are dropped."),
    Parameter(
        "sampling.max_completion_tokens",
        "Max response length",
        "In tokens, at least 1. Longer completions are truncated and scored as they are. Thinking models need 8192 or "
        "more.",
    ),
    Parameter(
        "train.kl_coefficient",
        "KL coefficient",
        "Weight of the KL penalty against the reference model, at least 0. 0 disables KL and skips the reference "
        "model.",
        "number",
    ),
    Parameter(
        "train.learning_rate",
        "Learning rate",
        "Peak learning rate, above 0. If empty, it is chosen from the method and the model's width (2e-4 for LoRA on a "
        "small model).",
        "number",
        empty="auto",
    ),
    Parameter(
        "train.save_every",
        "Save checkpoint every",
        "Steps between checkpoints. A checkpoint can be deployed, evaluated and trained further.",
        empty="with each validation, or once per epoch",
    ),
    Parameter(
        "train.eval_every",
        "Validate every",
        "Steps between validations on the held-out rows. 0 disables validation.",
        empty="up to ten times in all",
        only="validation",
    ),
)

MORE = (
    Parameter("train.max_steps", "Max steps", "Stop after this many steps, even if epochs remain.", empty="no limit"),
    Parameter(
        "train.loss",
        "Loss",
        "Policy loss; see docs/training.md.",
        "choice",
        {name: name for name in ("dapo", "grpo", "dr_grpo", "bnpo", "cispo", "gspo")},
    ),
    Parameter(
        "train.advantage_scale",
        "Advantage scale",
        "Divide advantages by the reward std of the group, of the batch, or not at all.",
        "choice",
        {"auto": "default of the loss", "group": "group std", "batch": "batch std", "none": "nothing"},
    ),
    Parameter("train.iterations", "Iterations per batch", "Optimizer steps on each batch of rollouts, 1 to 16."),
    Parameter(
        "train.schedule",
        "Learning rate schedule",
        "How the learning rate changes after warm-up.",
        "choice",
        {name: name for name in ("constant", "linear", "cosine")},
    ),
    Parameter(
        "train.warmup_ratio",
        "Warm-up ratio",
        "Share of the steps over which the learning rate rises, from 0 to below 1.",
        "number",
    ),
    Parameter("train.weight_decay", "Weight decay", "AdamW weight decay, at least 0.", "number"),
    Parameter("train.max_grad_norm", "Max gradient norm", "Gradients are clipped to this norm. Above 0.", "number"),
    Parameter("lora.r", "LoRA rank", "Rank of the adapters, at least 1.", only="lora"),
    Parameter(
        "lora.alpha", "LoRA alpha", "The adapter output is scaled by alpha / rank. Above 0.", "number", only="lora"
    ),
    Parameter(
        "train.micro_batch_tokens",
        "Micro-batch tokens",
        "Tokens per forward pass. Lower values use less memory; the gradient stays the same.",
    ),
    Parameter(
        "train.gradient_checkpointing",
        "Gradient checkpointing",
        "Recomputes activations in the backward pass: less memory, about a third slower.",
        "switch",
    ),
    Parameter(
        "sampling.max_concurrent",
        "Max concurrent samples",
        "Completions sampled at the same time. Lower values use less memory.",
    ),
    Parameter("sampling.stop", "Stop strings", "Each string ends a completion. One per line.", "list"),
    Parameter(
        "sampling.template", "Chat template options", 'A JSON object, for example {"enable_thinking": false}.', "json"
    ),
    Parameter(
        "train.keep", "Checkpoints to keep", "Number of newest checkpoints to keep. The best checkpoint is always kept."
    ),
    Parameter(
        "eval.samples",
        "Validation samples",
        "Completions per held-out prompt, at least 1.",
        only="validation",
    ),
    Parameter(
        "eval.temperature",
        "Validation temperature",
        "0 is greedy decoding, for a single sample per prompt.",
        "number",
        empty="0, or 1 for several samples",
        only="validation",
    ),
    Parameter(
        "device",
        "Device",
        "auto uses a GPU if one is available.",
        "choice",
        {"auto": "auto", "cpu": "cpu", "cuda": "cuda"},
    ),
)

PARAMETERS: Mapping[str, Parameter] = {parameter.key: parameter for parameter in (*MAIN, *MORE)}


def default_of(key: str) -> Json:
    """What a parameter is where nobody says anything else."""
    table, _, field = key.rpartition(".")
    return getattr(TABLES[table], field) if table else "auto"


def value_of(values: Mapping[str, Json], key: str) -> Json:
    """A parameter with its default filled in."""
    return values.get(key, default_of(key))


def fault_of(key: str, value: Json) -> str:
    """What is wrong with a value, by the words of the configuration; empty where nothing is."""
    table, _, field = key.rpartition(".")
    tables: dict[str, Json] = {
        "name": "draft",
        "model": "draft",
        "data": {"train": "rows.jsonl", "validation": "rows.jsonl"},
        "rewards": [{"name": "reward", "source": "reward.py:grade"}],
        "eval": {"temperature": 1.0},  # with it, any number of answers makes sense
    }
    tables[table or field] = {**tables.get(table, {}), field: value} if table else value
    try:
        parse_config(tables)
    except ConfigError as error:
        for line in error.message.splitlines():
            found = re.search(rf"\b{re.escape(key)}(?:\.\d+)?: (.*)", line)
            if found:
                return found[1]
    return ""
