"""The parameters of training: what they mean, what they may be, and what is wrong with a value."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from strop.config import RunConfig, parse_config
from strop.errors import ConfigError
from strop.services.drafts.draft import TABLES
from strop.types import Json

Kind = Literal["whole", "number", "choice", "switch", "list", "json"]


BATCH_SIZES = (1, 2, 4, 8, 16, 32)


@dataclass(frozen=True)
class Parameter:
    """A field of the wizard. Label, help text, kind and choices come from the setting's own field in `config`."""

    key: str
    """In config.toml: `train.batch_size`."""
    choices: Mapping[Json, str] | None = None
    """Labels of the choices, where they are not the values themselves."""
    empty: str = ""
    """Meaning of an empty field."""
    only: Literal["", "validation", "lora"] = ""
    """The part of training that it is about."""

    @property
    def label(self) -> str:
        """Title of the field."""
        return field_of(self.key).title or self.key

    @property
    def hint(self) -> str:
        """Meaning and range."""
        return field_of(self.key).description or ""

    @property
    def kind(self) -> Kind:
        """How it is edited."""
        return "choice" if self.choices else _kind(field_of(self.key).annotation)

    @property
    def options(self) -> Mapping[Json, str] | None:
        """Labels of the choices by value; None for a field without choices."""
        values = get_args(field_of(self.key).annotation) if self.kind == "choice" else ()
        return self.choices or {value: str(value) for value in values} or None

    @property
    def default(self) -> Json:
        """Default in config.toml."""
        return default_of(self.key)


def field_of(key: str) -> FieldInfo:
    """The field of the configuration that a key names."""
    table, _, name = key.rpartition(".")
    model = type(TABLES[table]) if table else RunConfig
    return model.model_fields[name]


def _kind(annotation: object) -> Kind:
    """How a value of a type is edited. An optional value, or one that may be `auto`, counts as its main type."""
    if get_origin(annotation) in (UnionType, Union):
        return _kind(get_args(annotation)[0])
    if get_origin(annotation) is Annotated:
        return _kind(get_args(annotation)[0])
    if get_origin(annotation) is Literal:
        return "choice"
    kinds: Mapping[object, Kind] = {int: "whole", float: "number", bool: "switch", tuple: "list", dict: "json"}
    return kinds[get_origin(annotation) or annotation]


MAIN = (
    Parameter("train.batch_size", {size: str(size) for size in BATCH_SIZES}),
    Parameter("train.epochs"),
    Parameter("train.samples_per_prompt"),
    Parameter("sampling.temperature"),
    Parameter("sampling.max_prompt_tokens"),
    Parameter("sampling.max_completion_tokens"),
    Parameter("train.kl_coefficient"),
    Parameter("train.learning_rate", empty="auto"),
    Parameter("train.save_every", empty="with each validation, or once per epoch"),
    Parameter("train.eval_every", empty="up to ten times in all", only="validation"),
)

MORE = (
    Parameter("train.max_steps", empty="no limit"),
    Parameter("train.loss"),
    Parameter(
        "train.advantage_scale",
        {"auto": "default of the loss", "group": "group std", "batch": "batch std", "none": "nothing"},
    ),
    Parameter("train.iterations"),
    Parameter("train.schedule"),
    Parameter("train.warmup_ratio"),
    Parameter("train.weight_decay"),
    Parameter("train.max_grad_norm"),
    Parameter("lora.r", only="lora"),
    Parameter("lora.alpha", only="lora"),
    Parameter("train.micro_batch_tokens"),
    Parameter("train.gradient_checkpointing"),
    Parameter("sampling.max_concurrent"),
    Parameter("sampling.stop"),
    Parameter("sampling.template"),
    Parameter("train.keep"),
    Parameter("eval.samples", only="validation"),
    Parameter("eval.temperature", empty="0, or 1 for several samples", only="validation"),
    Parameter("device"),
)

PARAMETERS: Mapping[str, Parameter] = {parameter.key: parameter for parameter in (*MAIN, *MORE)}


def default_of(key: str) -> Json:
    """The default value of a parameter."""
    table, _, field = key.rpartition(".")
    return getattr(TABLES[table], field) if table else "auto"


def value_of(values: Mapping[str, Json], key: str) -> Json:
    """A parameter with its default filled in."""
    return values.get(key, default_of(key))


def fault_of(key: str, value: Json) -> str:
    """The configuration's error message for a value; empty for a valid value."""
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
