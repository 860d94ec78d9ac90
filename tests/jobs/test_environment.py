"""What a training process gets to see."""

from __future__ import annotations

import pytest

from strop.config import RewardConfig
from strop.errors import RewardError
from strop.jobs.environment import needed_secrets, public_environment, trainer_secrets


def reward(*env: str) -> RewardConfig:
    return RewardConfig(name="judge", source="reward.py:grade", env=env)


@pytest.mark.parametrize(
    "name", ["OPENAI_API_KEY", "STROP_DATABASE_URL", "PGPASSWORD", "AWS_SECRET_ACCESS_KEY", "db_password", "stored"]
)
def test_secrets_of_the_server_stay_with_it(name: str) -> None:
    assert public_environment({name: "x", "PATH": "/bin"}, {"stored"}) == {"PATH": "/bin"}


@pytest.mark.parametrize("name", ["HF_TOKEN", "WANDB_API_KEY", "MLFLOW_TRACKING_PASSWORD", "CUDA_VISIBLE_DEVICES"])
def test_what_the_trainer_itself_logs_in_with_is_passed_on(name: str) -> None:
    assert public_environment({name: "x"}, frozenset()) == {name: "x"}


def test_a_stored_secret_takes_the_place_of_the_servers_variable() -> None:
    assert public_environment({"HF_TOKEN": "the server's"}, {"HF_TOKEN"}) == {}


def test_only_the_secrets_that_the_rewards_name_are_revealed() -> None:
    secrets = {"JUDGE_KEY", "OTHER_KEY"}
    assert needed_secrets([reward("JUDGE_KEY", "TZ"), reward("JUDGE_KEY")], {"TZ": "UTC"}, secrets) == ("JUDGE_KEY",)


def test_a_variable_that_is_nowhere_is_named() -> None:
    with pytest.raises(RewardError, match="reward 'judge' needs A_KEY: store it as a secret") as caught:
        needed_secrets([reward("A_KEY")], {}, frozenset())
    assert caught.value.param == "rewards.env"


@pytest.mark.parametrize(
    ("recorders", "revealed"), [((), ("HF_TOKEN",)), (("wandb", "tensorboard"), ("HF_TOKEN", "WANDB_API_KEY"))]
)
def test_the_trainer_gets_the_secrets_of_the_hub_and_of_its_own_trackers(
    recorders: tuple[str, ...], revealed: tuple[str, ...]
) -> None:
    stored = ("HF_TOKEN", "JUDGE_KEY", "MLFLOW_TRACKING_TOKEN", "WANDB_API_KEY")
    assert trainer_secrets(recorders, stored) == revealed
