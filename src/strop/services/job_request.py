"""The body that creates a fine-tuning job: OpenAI's fields, and `strop` for what they do not say."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, WithJsonSchema

from strop.config import (
    REWARD_NAME,
    EnvironmentConfig,
    EvalConfig,
    LoraConfig,
    SamplingConfig,
    TrainConfig,
    WandbConfig,
)
from strop.http.bodies import AUTO_FLOAT, AUTO_INT, Body, Metadata

Json = dict[str, Any]


def _table(model: type[BaseModel]) -> Any:
    """A table of config.toml: described by its model, checked together with all the others."""
    return WithJsonSchema({**model.model_json_schema(), "description": model.__doc__})


class Hyperparameters(Body):
    """`method.reinforcement.hyperparameters`. See docs/api.md for what each becomes."""

    batch_size: Annotated[Annotated[int, Field(ge=1, le=256)] | None, AUTO_INT] = None
    compute_multiplier: Annotated[Annotated[float, Field(gt=1e-5, le=10)] | None, AUTO_FLOAT] = None
    eval_interval: Annotated[Annotated[int, Field(ge=1)] | None, AUTO_INT] = None
    eval_samples: Annotated[Annotated[int, Field(ge=1)] | None, AUTO_INT] = None
    learning_rate_multiplier: Annotated[Annotated[float, Field(gt=0)] | None, AUTO_FLOAT] = None
    n_epochs: Annotated[Annotated[int, Field(ge=1, le=50)] | None, AUTO_INT] = None
    reasoning_effort: Literal["default", "low", "medium", "high"] | None = None


class Reinforcement(Body):
    """`method.reinforcement`"""

    grader: Json | None = Field(None, description="Not needed where `strop.rewards` says how answers are scored.")
    hyperparameters: Hyperparameters | None = None
    response_format: Json | None = None


class Method(Body):
    """`method`; strop knows `reinforcement` only."""

    type: Literal["supervised", "dpo", "reinforcement"]
    reinforcement: Reinforcement | None = None
    supervised: Json | None = None
    dpo: Json | None = None


class OldHyperparameters(Body):
    """`hyperparameters` at the top, from before `method`."""

    batch_size: Annotated[Annotated[int, Field(ge=1, le=256)] | None, AUTO_INT] = None
    learning_rate_multiplier: Annotated[Annotated[float, Field(gt=0)] | None, AUTO_FLOAT] = None
    n_epochs: Annotated[Annotated[int, Field(ge=1, le=50)] | None, AUTO_INT] = None


class Wandb(Body):
    """Settings of a W&B run."""

    project: str = Field(min_length=1)
    name: str | None = None
    entity: str | None = None
    tags: list[str] | None = None


class Integration(Body):
    """A tracker beside the run folder."""

    type: Literal["wandb"]
    wandb: Wandb


class RewardOption(Body):
    """One of `strop.rewards`: a reward of this server, Python code, or a grader, with its weight."""

    name: str = Field(pattern=REWARD_NAME, description="Name in metrics and files.")
    reward: str | None = Field(None, description="Id or name of a reward of this server.")
    version: int | None = Field(None, ge=1, description="Of that reward; the newest by default.")
    python: str | None = Field(None, description="Source of a Python file.")
    function: str = Field("grade", pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", description="What it calls in there.")
    grader: Json | None = Field(None, description="A grader in OpenAI's form.")
    weight: float = 1.0
    timeout_s: float | None = Field(None, gt=0)
    env: list[str] | None = Field(None, description="Names of secrets that it gets to see.")
    workers: int | None = Field(None, ge=1, le=64)
    memory_mb: int | None = Field(None, ge=64)


class StropOptions(Body):
    """`strop`: the tables of config.toml. What stands here wins over OpenAI's fields."""

    name: str | None = Field(None, description="Name of the job and its run.")
    device: Literal["auto", "cpu", "cuda"] | None = None
    recorders: list[Literal["tensorboard", "wandb", "mlflow"]] | None = None
    rewards: list[RewardOption] | None = Field(None, min_length=1, description="In place of the grader.")
    sampling: Annotated[Json, _table(SamplingConfig)] = Field({})
    train: Annotated[Json, _table(TrainConfig)] = Field({})
    lora: Annotated[Json, _table(LoraConfig)] = Field({})
    environment: Annotated[Json, _table(EnvironmentConfig)] = Field({})
    eval: Annotated[Json, _table(EvalConfig)] = Field({})
    wandb: Annotated[Json, _table(WandbConfig)] = Field({})


class JobRequest(Body):
    """`POST /v1/fine_tuning/jobs`"""

    model: str = Field(min_length=1, description="A name that GET /v1/models lists, a Hugging Face id, or a folder.")
    training_file: str = Field(min_length=1, description="Id of an uploaded file.")
    validation_file: str | None = Field(None, description="Id of an uploaded file.")
    suffix: str | None = Field(None, min_length=1, max_length=64, description="Part of the fine-tuned model's name.")
    seed: int | None = Field(None, ge=0, lt=2**31, description="Drawn by chance where it is missing.")
    metadata: Metadata | None = None
    integrations: list[Integration] | None = Field(None, max_length=5)
    method: Method | None = None
    hyperparameters: OldHyperparameters | None = None
    trainingType: str | None = Field(None, description="Azure's; there is one place to train here.")
    strop: StropOptions | None = None
