"""The models that evaluations ask, ready to play rows: of this machine, of the server, or remote."""

from __future__ import annotations

import importlib
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from strop.config import RunConfig
from strop.envs.endpoint import open_client
from strop.envs.remote import ChatEnvironment
from strop.envs.single_turn import SingleTurn
from strop.errors import ConfigError, DataError
from strop.evals.spec import Target
from strop.policy.chat import ChatTemplate
from strop.policy.engine import Engine
from strop.policy.sampler import LocalSampler
from strop.serve.client import EngineClient
from strop.types import Environment, Row
from strop.worker.data import fitting
from strop.worker.deployed import DeployedEnvironment
from strop.worker.models import load_model

Say = Callable[[str], None]


@dataclass(frozen=True)
class Subject:
    """A model, and the rows that it can be asked."""

    label: str
    environment: Environment
    rows: Sequence[Row]


@asynccontextmanager
async def open_subject(
    target: Target, rows: Sequence[Row], data: str, config: RunConfig, say: Say, guarded: bool
) -> AsyncIterator[Subject]:
    """Load or reach a model. `data` names the rows in errors; `guarded` is for addresses that
    somebody else wrote: some are refused then, and proxies are not used.

    Raises ModelError, DataError where no row fits, ConfigError for a key that is not there.
    """
    if target.kind == "remote":
        async with open_client(target.base_url or "", _key(target), _guarded_http() if guarded else None) as client:
            yield Subject(target.shown, ChatEnvironment(client, target.source, target.concurrency), rows)
    elif target.kind == "deployment":
        engine = EngineClient(Path(target.socket or ""))
        try:
            environment = DeployedEnvironment(engine, target.name or "", target.source, config.sampling.template)
            await environment.load()
            yield Subject(target.shown, environment, rows)
        finally:
            await engine.close()
    else:
        yield _local(target, rows, data, config, say)


def _local(target: Target, rows: Sequence[Row], data: str, config: RunConfig, say: Say) -> Subject:
    policy, found = load_model(target.source, config.device, say)
    chat = ChatTemplate(policy.tokenizer, policy.name, config.sampling.template)
    limit = config.sampling.max_prompt_tokens
    kept, dropped = fitting(rows, data, chat, limit)
    if dropped:
        say(f"{dropped} prompts are longer than {limit} tokens: dropped")
    if not kept:
        raise DataError(f"{data}: no prompt fits into sampling.max_prompt_tokens = {limit}")
    environment = SingleTurn(chat, LocalSampler(Engine(policy, config.sampling.max_concurrent)))
    return Subject(target.label or found.label, environment, kept)


def _guarded_http() -> Any:
    try:
        module = importlib.import_module("strop.endpoints.transport")
    except ModuleNotFoundError:
        return None  # an extra is not installed: `open_client` says so
    return module.guarded_http()


def _key(target: Target) -> str | None:
    if target.api_key_env is None:
        return None
    key = os.environ.get(target.api_key_env)
    if not key:
        raise ConfigError(
            f"the variable {target.api_key_env} is not set; it should hold the key of {target.base_url}",
            param="api_key_env",
        )
    return key
