"""What the process of a task gets to see of the server's environment."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping

from strop.config import RewardConfig
from strop.errors import RewardError
from strop.jobs.kind import Secrets

# Whatever is called like this stays with the server, but for what the trainer itself logs in
# with: to a model hub, to a tracker.
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|DATABASE_URL|^PG", re.IGNORECASE)
_TRAINERS = re.compile(r"(HF|HUGGING_FACE|WANDB|MLFLOW)_\w+|TOKENIZERS_PARALLELISM")


def public_environment(environment: Mapping[str, str], secrets: Collection[str]) -> dict[str, str]:
    """The variables that hold no secret: neither by their name, nor as one of the stored `secrets`."""
    return {
        name: value
        for name, value in environment.items()
        if name not in secrets and (_TRAINERS.fullmatch(name) or not _SECRET.search(name))
    }


def needed_secrets(
    rewards: Iterable[RewardConfig], public: Mapping[str, str], secrets: Collection[str]
) -> tuple[str, ...]:
    """The stored secrets that the rewards name. RewardError where there is no variable of a name."""
    needed: dict[str, None] = {}
    for reward in rewards:
        missing = [name for name in reward.env if name not in secrets and name not in public]
        if missing:
            raise RewardError(
                f"reward {reward.name!r} needs {', '.join(missing)}: store it as a secret of the server, "
                "then resume the job",
                param="rewards.env",
            )
        needed |= dict.fromkeys(name for name in reward.env if name in secrets)
    return tuple(needed)


def trainer_secrets(recorders: Iterable[str], secrets: Iterable[str]) -> tuple[str, ...]:
    """The stored secrets with which the trainer itself logs in: to the model hub, to the job's trackers."""
    prefixes = ("HF_", *(f"{recorder.upper()}_" for recorder in recorders))
    return tuple(name for name in secrets if name.startswith(prefixes))


class Environment:
    """The variables of the server's processes, at this moment."""

    def __init__(self, secrets: Secrets) -> None:
        """Raises DatabaseError where the names of the stored secrets cannot be read."""
        self._secrets = secrets
        self.stored = frozenset(secret.name for secret in secrets.names())
        self.public = public_environment(os.environ, self.stored)

    def of_rewards(self, rewards: Iterable[RewardConfig]) -> tuple[str, ...]:
        """The stored secrets that rewards name. RewardError where there is no variable of a name."""
        return needed_secrets(rewards, self.public, self.stored)

    def with_secrets(self, names: Iterable[str]) -> dict[str, str]:
        """All variables without a secret, and these stored ones."""
        return {**self.public, **self._secrets.reveal(dict.fromkeys(names))}
