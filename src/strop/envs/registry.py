"""Environments by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from strop.config import EnvironmentConfig
from strop.envs.single_turn import SingleTurn
from strop.envs.user_turns import UserTurns
from strop.errors import ConfigError
from strop.types import Environment

ENVIRONMENTS: dict[str, Callable[[Mapping[str, object]], Environment]] = {
    "single_turn": lambda options: SingleTurn(),
    "user_turns": lambda options: UserTurns(),
}
"""Each factory receives the `options` of the `[environment]` table."""


def open_environment(config: EnvironmentConfig) -> Environment:
    """Create the configured environment. Raises ConfigError for an unknown name."""
    make = ENVIRONMENTS.get(config.name)
    if make is None:
        known = ", ".join(sorted(ENVIRONMENTS))
        raise ConfigError(
            f"environment.name: no environment {config.name!r}; expected one of {known}", param="environment.name"
        )
    return make(config.options)
