"""From a request that creates a job to the configuration of its run.

Pure but for `Library`, which says what the names in a request stand for on this server.
OpenAI's fields become keys of the configuration; the tables under `strop` are laid over them;
what neither says keeps strop's defaults. docs/api.md has the table.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from strop.config import RunConfig, TrainConfig, parse_config
from strop.envs.registry import open_environment
from strop.errors import ConfigError, InvalidRequest
from strop.services.job_request import (
    Hyperparameters,
    Integration,
    JobRequest,
    Reinforcement,
    StropOptions,
)
from strop.services.reward_tables import RewardLibrary, grader_tables, reward_tables

_TABLES = ("sampling", "train", "lora", "environment", "eval", "wandb")
_EVALUATIONS = 10
"""Validations, after the first, in a run whose `eval_interval` is `auto`: at most."""


@dataclass(frozen=True)
class DataFile:
    """An uploaded file to train or validate on."""

    path: str
    """What the configuration names."""
    rows: int


@dataclass(frozen=True)
class StartModel:
    """The model to start from."""

    source: str
    """What the configuration names: catalogue name, Hugging Face id, or folder."""
    name: str
    """What people call it."""
    template: str | None
    """Its chat template; None where the model is not on this machine yet."""
    checkpoint: str | None = None
    """Id of the checkpoint that it is."""


class Library(RewardLibrary, Protocol):
    """What the names in a request stand for. Each raises InvalidRequest for one that is unknown."""

    def data(self, file_id: str, param: str) -> DataFile:
        """The rows of an uploaded file."""

    def model(self, name: str) -> StartModel:
        """A base model, a fine-tuned one, or a checkpoint."""


@dataclass(frozen=True)
class Order:
    """A job to be created."""

    model: StartModel
    config: RunConfig
    files: Mapping[str, str]
    """Graders and reward functions that the configuration names, by path in the data folder."""
    notes: tuple[str, ...]
    """What the client should know, though nothing is wrong with it."""


def translate(request: JobRequest, seed: int, library: Library) -> Order:
    """What a request asks for; `seed` is taken where it has none.

    Raises InvalidRequest, with the field, for what strop does not do or what cannot work.
    """
    method = _method(request)
    options = request.strop or StropOptions()
    base = library.model(request.model)
    train = library.data(request.training_file, "training_file")
    validation = library.data(request.validation_file, "validation_file") if request.validation_file else None
    rewards, files = _rewards(method, options, library)
    hyperparameters = _hyperparameters(request, method)
    notes = _notes(method)
    tables: dict[str, Any] = {
        "name": options.name or _run_name(request.suffix or base.name),
        "model": base.source,
        "seed": seed if request.seed is None else request.seed,
        "device": options.device or "auto",
        "recorders": _recorders(request, options),
        "data": {"train": train.path, **({"validation": validation.path} if validation else {})},
        "rewards": rewards,
        "sampling": {"template": _template(hyperparameters, base, notes)},
        "train": _train_table(hyperparameters, validation),
        "eval": _eval_table(hyperparameters, method),
        "wandb": _wandb_table(request.integrations or []),
    }
    for name in _TABLES:
        tables[name] = {**tables.get(name, {}), **getattr(options, name)}
    _settle(tables, train.rows, validation is not None)
    return Order(base, _parsed(tables), files, tuple(notes))


def _notes(method: Reinforcement) -> list[str]:
    """What of a method is accepted and has another effect than elsewhere, or none."""
    notes = []
    if method.response_format and method.response_format.get("type") not in (None, "text"):
        notes.append(
            "response_format is not enforced while sampling; the graders score completions that do not match it"
        )
    if method.grader and "invalid_grade" in method.grader:
        notes.append(
            "invalid_grade has no effect: an answer that cannot be graded has no reward here, and its group is "
            "left out of the step"
        )
    return notes


def _method(request: JobRequest) -> Reinforcement:
    kind = request.method.type if request.method else None
    if kind == "reinforcement" and request.method and request.method.reinforcement:
        return request.method.reinforcement
    if kind in (None, "reinforcement") and request.strop and request.strop.rewards:
        return Reinforcement()
    if kind == "reinforcement":
        raise InvalidRequest(
            "method.reinforcement is missing: it contains the grader that scores completions",
            param="method.reinforcement",
        )
    found = f"method.type {kind!r} is" if kind else "without a method, jobs are supervised ones, which are"
    raise InvalidRequest(
        f'{found} not what strop does: it trains by reinforcement; send method = {{"type": "reinforcement", '
        '"reinforcement": {"grader": …}}',
        param="method.type" if kind else "method",
    )


def _hyperparameters(request: JobRequest, method: Reinforcement) -> Hyperparameters:
    """Those of the method, and where it is silent those at the top."""
    old = request.hyperparameters.model_dump(exclude_unset=True) if request.hyperparameters else {}
    new = method.hyperparameters.model_dump(exclude_unset=True) if method.hyperparameters else {}
    return Hyperparameters.model_validate({**old, **new})


def _train_table(hyperparameters: Hyperparameters, validation: DataFile | None) -> dict[str, Any]:
    if hyperparameters.eval_interval is not None and validation is None:
        raise InvalidRequest(
            "eval_interval needs a validation_file: there is nothing to evaluate on",
            param="method.reinforcement.hyperparameters.eval_interval",
        )
    table = {
        "batch_size": hyperparameters.batch_size,
        "epochs": hyperparameters.n_epochs,
        "learning_rate_multiplier": hyperparameters.learning_rate_multiplier,
        "eval_every": hyperparameters.eval_interval,
    }
    if hyperparameters.compute_multiplier is not None:
        usual = TrainConfig().samples_per_prompt
        table["samples_per_prompt"] = max(2, round(usual * hyperparameters.compute_multiplier))
    return {key: value for key, value in table.items() if value is not None}


def _eval_table(hyperparameters: Hyperparameters, method: Reinforcement) -> dict[str, Any]:
    """Azure's graders say from which reward on an answer passes."""
    threshold = (method.grader or {}).get("pass_threshold")
    table = {"samples": hyperparameters.eval_samples, "pass_threshold": threshold}
    return {key: value for key, value in table.items() if value is not None}


def _template(hyperparameters: Hyperparameters, base: StartModel, notes: list[str]) -> dict[str, Any]:
    """Options of the chat template for a level of reasoning, where it has any."""
    effort = hyperparameters.reasoning_effort
    if effort in (None, "default"):
        return {}
    if base.template is None:
        notes.append(
            f"reasoning_effort {effort!r} has no effect: the chat template of {base.source} is not on this machine "
            f"yet; fetch it with `strop models pull {base.source}`, or set strop.sampling.template"
        )
        return {}
    if "reasoning_effort" in base.template:
        return {"reasoning_effort": effort}
    if "enable_thinking" in base.template:
        return {"enable_thinking": effort != "low"}
    notes.append(f"reasoning_effort {effort!r} has no effect: the chat template of {base.source} knows no such option")
    return {}


def _recorders(request: JobRequest, options: StropOptions) -> list[str]:
    integrations = request.integrations or []
    if len(integrations) > 1:
        raise InvalidRequest("one W&B run is what a job can have; send one integration", param="integrations")
    named = options.recorders or []
    return [*named, *(integration.type for integration in integrations if integration.type not in named)]


def _wandb_table(integrations: list[Integration]) -> dict[str, Any]:
    return integrations[0].wandb.model_dump(exclude_none=True) if integrations else {}


def _settle(tables: dict[str, Any], rows: int, validated: bool) -> None:
    """Choose what was left to us and depends on the rest: when to validate, when to save, how to sample."""
    train, evaluation = tables["train"], tables["eval"]
    if validated and "eval_every" not in train:
        # Of the values that may still turn out wrong only the sound ones count here.
        batch, epochs, most = (_positive(train.get(key)) for key in ("batch_size", "epochs", "max_steps"))
        steps = -(-rows // (batch or TrainConfig().batch_size)) * (epochs or 1)
        train["eval_every"] = usual_interval(min(steps, most or steps))
    if train.get("eval_every"):
        train.setdefault("save_every", train["eval_every"])
    if (_positive(evaluation.get("samples")) or 1) > 1:
        evaluation.setdefault("temperature", 1.0)


def usual_interval(steps: int) -> int:
    """Default steps between validations: at most ten validations after the first."""
    return max(1, math.ceil(steps / _EVALUATIONS))


def _positive(value: Any) -> int | None:
    return value if isinstance(value, int) and value > 0 else None


def _rewards(
    method: Reinforcement, options: StropOptions, library: Library
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """The `[[rewards]]`, and the files that they name."""
    if options.rewards:
        return reward_tables(options.rewards, library)
    if method.grader is None:
        raise InvalidRequest("method.reinforcement.grader is missing", param="method.reinforcement.grader")
    return grader_tables(method.grader, "method.reinforcement", library)


def _run_name(text: str) -> str:
    """What can be of a text in the name of a run."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._") or "job"


def _parsed(tables: Mapping[str, Any]) -> RunConfig:
    try:
        config = parse_config(tables, "strop")
        open_environment(config.environment)  # an unknown name is refused before the job is queued
        return config
    except ConfigError as error:
        raise InvalidRequest(error.message, param=f"strop.{error.param}" if error.param else "strop") from None
