"""The parameters of training: what they mean, what they may be, and what is wrong with a value."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from strop.config import parse_config
from strop.errors import ConfigError
from strop.types import Json
from strop.web.wizard.draft import TABLES

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
        "Prompts in each step. More of them make steps steadier and slower.",
        "choice",
        {size: str(size) for size in BATCH_SIZES},
    ),
    Parameter("train.epochs", "Epochs", "Passes over the training rows, at least 1."),
    Parameter(
        "train.samples_per_prompt",
        "Samples per prompt",
        "Answers to each prompt, which are compared with each other; at least 2. "
        "Larger groups judge better and cost more.",
    ),
    Parameter(
        "sampling.temperature",
        "Temperature",
        "Above 0, up to 2. Higher tries more; at 0.8 answers stay closer to what is likely.",
        "number",
    ),
    Parameter("sampling.max_prompt_tokens", "Maximum prompt length", "Tokens. Longer prompts are left out."),
    Parameter(
        "sampling.max_completion_tokens",
        "Maximum response length",
        "Tokens. Longer answers are cut off, and scored as they are. Thinking models need 8192 and more.",
    ),
    Parameter(
        "train.kl_coefficient",
        "KL coefficient",
        "Holds the model near the one it started from. 0 does not, and saves the reference.",
        "number",
    ),
    Parameter(
        "train.learning_rate",
        "Learning rate",
        "Above 0. Left empty it goes by the method and the model's width, as 2e-4 for LoRA on a small model.",
        "number",
        empty="auto",
    ),
    Parameter(
        "train.save_every",
        "Save checkpoint every",
        "Steps. A checkpoint can be deployed, compared, and trained further.",
        empty="with each validation, else once an epoch",
    ),
    Parameter(
        "train.eval_every",
        "Validate every",
        "Steps between validations on the held-out rows; 0 turns them off.",
        empty="up to ten times in all",
        only="validation",
    ),
)

MORE = (
    Parameter("train.max_steps", "Most steps", "Ends training early, whatever the epochs say.", empty="no limit"),
    Parameter(
        "train.loss",
        "Loss",
        "How the policy is improved; see docs/training.md.",
        "choice",
        {name: name for name in ("dapo", "grpo", "dr_grpo", "bnpo", "cispo", "gspo")},
    ),
    Parameter(
        "train.advantage_scale",
        "Advantages are divided by",
        "The spread within a group, that of the batch, or nothing.",
        "choice",
        {"auto": "by the loss", "group": "the group's spread", "batch": "the batch's spread", "none": "nothing"},
    ),
    Parameter("train.iterations", "Updates a batch", "Optimizer steps on each batch of answers, 1 to 16."),
    Parameter(
        "train.schedule",
        "Schedule",
        "Of the learning rate, after the warm-up.",
        "choice",
        {name: name for name in ("constant", "linear", "cosine")},
    ),
    Parameter("train.warmup_ratio", "Warm-up", "Share of the steps over which the rate rises, below 1.", "number"),
    Parameter("train.weight_decay", "Weight decay", "AdamW's, at least 0.", "number"),
    Parameter("train.max_grad_norm", "Largest gradient", "Gradients are scaled down to this norm.", "number"),
    Parameter("lora.r", "LoRA rank", "Width of the adapters.", only="lora"),
    Parameter("lora.alpha", "LoRA alpha", "The adapters' output is scaled by alpha / rank.", "number", only="lora"),
    Parameter(
        "train.micro_batch_tokens", "Tokens in one forward", "Fewer take less memory; the result stays the same."
    ),
    Parameter(
        "train.gradient_checkpointing",
        "Recompute activations",
        "Less memory, a third slower.",
        "switch",
    ),
    Parameter("sampling.max_concurrent", "Answers at the same time", "Fewer take less memory while sampling."),
    Parameter("sampling.stop", "Stop strings", "Each ends an answer; one a line.", "list"),
    Parameter("sampling.template", "Template options", 'JSON, such as {"enable_thinking": false}.', "json"),
    Parameter("train.keep", "Checkpoints kept", "The newest ones; the best stays beside them."),
    Parameter("eval.samples", "Answers while validating", "To each held-out prompt.", only="validation"),
    Parameter(
        "eval.temperature",
        "Temperature while validating",
        "0 takes the likeliest token each time, which is for one answer.",
        "number",
        empty="0, or 1 for several answers",
        only="validation",
    ),
    Parameter(
        "device",
        "Train on",
        "auto takes a GPU where there is one.",
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
