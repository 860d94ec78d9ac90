"""The specification of an evaluation: model, rows and rewards, as one JSON document."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from strop.config import RunConfig, parse_config
from strop.errors import ConfigError
from strop.types import Json

Kind = Literal["base", "folder", "checkpoint", "deployment", "remote"]


class Target(BaseModel):
    """The model to evaluate."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Kind
    source: str = Field(description="Catalogue name, hub id, folder, checkpoint or run; a remote model's name there.")
    label: str = Field("", description="For people; by default the source.")
    base_url: str | None = Field(None, description="Of a remote model's endpoint, `/v1` included.")
    api_key_env: str | None = Field(None, description="Variable that holds the endpoint's key.")
    concurrency: int = Field(16, ge=1, le=512, description="Calls to a remote model at the same time.")
    name: str | None = Field(None, description="Of a deployment: what the model process knows it by.")
    socket: str | None = Field(None, description="Of a deployment: the model process.")

    @model_validator(mode="after")
    def _complete(self) -> Target:
        if self.kind == "remote":
            check_endpoint(self.base_url)
        if self.kind == "deployment" and not (self.name and self.socket):
            raise ValueError("a deployment needs its name and the socket of the model process")
        return self

    @property
    def shown(self) -> str:
        """Label for tables and messages."""
        return self.label or (f"{self.source}@{self.base_url}" if self.kind == "remote" else self.source)


@dataclass(frozen=True)
class EvaluationSpec:
    """A complete evaluation request."""

    target: Target
    data: str
    """File of rows."""
    limit: int | None
    """Maximum number of rows, from the start."""
    config: RunConfig
    """Configuration; only `rewards`, `sampling`, `eval`, `seed`, `device` and `train.max_failed_groups` are used."""

    @property
    def variables(self) -> list[str]:
        """Names of the environment variables that the process needs."""
        names = [name for reward in self.config.rewards for name in reward.env]
        return list(dict.fromkeys([*names, *([self.target.api_key_env] if self.target.api_key_env else [])]))

    def as_dict(self) -> dict[str, Json]:
        """The document."""
        return {
            "model": self.target.model_dump(mode="json", exclude_none=True),
            "data": self.data,
            "limit": self.limit,
            "config": self.config.model_dump(mode="json", exclude_none=True),
        }


def read_spec(document: Mapping[str, Json], folder: Path) -> EvaluationSpec:
    """Parse a document; its paths are relative to `folder`. Raises ConfigError that names the key, what was found,
    and what to do.
    """
    try:
        target, data, tables = Target.model_validate(document["model"]), document["data"], dict(document["config"])
    except ValidationError as error:
        fault = error.errors()[0]
        key = ".".join(["model", *map(str, fault["loc"])])
        raise ConfigError(f"evaluation: {key}: {_words(error)}", param=key) from None
    except KeyError as error:
        raise ConfigError(f"evaluation: {error.args[0]} is missing", param=str(error.args[0])) from None
    if target.kind in ("folder", "checkpoint"):
        target = target.model_copy(update={"source": _absolute(folder, target.source), "label": target.shown})
    if target.socket:
        target = target.model_copy(update={"socket": _absolute(folder, target.socket)})
    rewards = [{**reward, "source": _absolute(folder, reward["source"])} for reward in tables.get("rewards", ())]
    path = _absolute(folder, data)
    return EvaluationSpec(target, path, document.get("limit"), evaluation_config({**tables, "rewards": rewards}))


def evaluation_config(tables: Mapping[str, Any], origin: str = "evaluation") -> RunConfig:
    """A configuration of which only the tables of an evaluation are given. Raises ConfigError."""
    return parse_config({**DEFAULTS, **tables}, origin)


DEFAULTS: Mapping[str, Any] = {"name": "evaluation", "model": "unused", "data": {"train": "unused"}}
"""Defaults for a file that has only [[rewards]]."""


def parse_target(text: str, api_key_env: str | None = None, concurrency: int = 16) -> Target:
    """Parse a model argument: `MODEL@https://host/v1`, or a model on this machine. Raises ConfigError."""
    remote = re.fullmatch(r"(\S+)@(https?://\S+)", text)
    if remote is None:
        return Target(kind="base", source=text)
    try:
        return Target(
            kind="remote",
            source=remote[1],
            base_url=remote[2],
            api_key_env=api_key_env,
            concurrency=concurrency,
        )
    except ValidationError as error:
        raise ConfigError(f"{text}: {_words(error)}", param="model") from None


def check_endpoint(url: str | None) -> None:
    """Raises ValueError for an invalid base URL."""
    try:
        parts = urlsplit(url or "")
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid:
        raise ValueError(f"base_url {url!r} is not a base URL; expected, for example, https://api.openai.com/v1")
    if parts.username or parts.password:
        raise ValueError("base_url must not contain a password; use api_key_env instead")
    if parts.query or parts.fragment:
        raise ValueError("base_url ends with its path, such as /v1; leave out what is behind ? or #")


def _words(error: ValidationError) -> str:
    return error.errors()[0]["msg"].removeprefix("Value error, ")


def _absolute(folder: Path, path: str) -> str:
    return str((folder / path).resolve())
