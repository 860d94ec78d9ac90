"""Models to evaluate: loaded here, deployed on the server, or remote."""

from __future__ import annotations

import importlib
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from strop.config import RunConfig
from strop.envs.registry import open_environment
from strop.errors import ConfigError, DataError
from strop.evals.spec import Target
from strop.policy.chat import ChatTemplate
from strop.policy.completer import LocalCompleter
from strop.policy.engine import Engine
from strop.policy.sampler import LocalSampler
from strop.rollout import Player
from strop.types import Completer, Row
from strop.worker.data import fitting
from strop.worker.models import load_model

Say = Callable[[str], None]


@dataclass(frozen=True)
class EvalTarget:
    """A model in its environment, with the rows that fit it."""

    label: str
    player: Player
    rows: Sequence[Row]


@asynccontextmanager
async def open_target(
    target: Target, rows: Sequence[Row], data: str, config: RunConfig, say: Say, guarded: bool
) -> AsyncIterator[EvalTarget]:
    """Load or reach a model. `data` names the rows in errors. `guarded` is for untrusted addresses: some are then
    rejected, and proxies are not used.

    Raises ModelError, DataError if no row fits, ConfigError for a missing API key.
    """
    if target.kind in COMPLETERS:
        async with COMPLETERS[target.kind](target, config, guarded) as completer:
            yield EvalTarget(target.shown, player_of(config, completer), rows)
    else:
        yield _local(target, rows, data, config, say)


@asynccontextmanager
async def _remote(target: Target, config: RunConfig, guarded: bool) -> AsyncIterator[Completer]:
    try:  # an extra, so that training needs no client for endpoints
        endpoint = importlib.import_module("strop.completers.endpoint")
        server = importlib.import_module("strop.endpoints.server")
    except ModuleNotFoundError as error:
        raise ConfigError(
            f'remote models need the {error.name} package; install it with: pip install "strop[graders]"'
        ) from None
    place = server.Server(target.base_url or "", _key(target), target.api_key_env)
    async with endpoint.open_endpoint(place, target.source, target.concurrency, guarded) as completer:
        yield completer


@asynccontextmanager
async def _deployment(target: Target, config: RunConfig, guarded: bool) -> AsyncIterator[Completer]:
    deployed = importlib.import_module("strop.serve.completer")  # packages of a server, which there is then
    socket, template = Path(target.socket or ""), config.sampling.template
    async with deployed.open_deployment(socket, target.name or "", target.source, template) as completer:
        yield completer


COMPLETERS: dict[str, Callable[[Target, RunConfig, bool], AbstractAsyncContextManager[Completer]]] = {
    "remote": _remote,
    "deployment": _deployment,
}
"""Completers by target kind, for models that are not loaded in this process."""


def _local(target: Target, rows: Sequence[Row], data: str, config: RunConfig, say: Say) -> EvalTarget:
    policy, found = load_model(target.source, config.device, say)
    chat = ChatTemplate(policy.tokenizer, policy.name, config.sampling.template)
    limit = config.sampling.max_prompt_tokens
    kept, dropped = fitting(rows, data, chat, limit)
    if dropped:
        say(f"{dropped} prompts are longer than {limit} tokens: dropped")
    if not kept:
        raise DataError(f"{data}: no prompt fits into sampling.max_prompt_tokens = {limit}")
    completer = LocalCompleter(policy, chat, LocalSampler(Engine(policy, config.sampling.max_concurrent)))
    return EvalTarget(target.label or found.label, player_of(config, completer), kept)


def player_of(config: RunConfig, completer: Completer) -> Player:
    """A completer in the environment that the configuration names."""
    return Player(completer, open_environment(config.environment), config.environment.max_turns)


def _key(target: Target) -> str | None:
    if target.api_key_env is None:
        return None
    key = os.environ.get(target.api_key_env)
    if not key:
        raise ConfigError(
            f"the environment variable {target.api_key_env} is not set; set it to the API key of {target.base_url}",
            param="api_key_env",
        )
    return key
