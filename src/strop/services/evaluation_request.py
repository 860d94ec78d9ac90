"""From a request for an evaluation to its document: names become paths, tables are checked."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import sqlalchemy as sa
from pydantic import Field, WithJsonSchema

from strop.config import EnvironmentConfig, EvalConfig, SamplingConfig
from strop.errors import ConfigError, InvalidRequest, NotFound
from strop.evals.spec import EvaluationSpec, Target, evaluation_config
from strop.http.bodies import Body
from strop.jobs.environment import public_environment
from strop.jobs.evaluations import NewEvaluation
from strop.services.container import Services
from strop.services.job_request import RewardOption
from strop.services.providers import check_address
from strop.services.reward_tables import reward_tables
from strop.services.server_library import ServerLibrary
from strop.services.trained import find_trained, is_trained
from strop.store.datasets import DatasetStore
from strop.store.files import write_atomic
from strop.store.providers import ProviderStore
from strop.store.queries.lookup import sendable
from strop.store.tables import deployments
from strop.types import Json

_UP = "../.."
"""From the folder of an evaluation to the data folder: paths in the document begin there."""


class RemoteModel(Body):
    """A model behind an OpenAI-compatible endpoint that is not this server's."""

    model: str = Field(min_length=1, description="Its name there.")
    provider: str | None = Field(None, description="A provider of this server; either this or `base_url`.")
    base_url: str | None = Field(None, description="Address of the endpoint, `/v1` included.")
    api_key_env: str | None = Field(None, description="Name of the secret that holds the key; a provider has its own.")
    concurrency: int = Field(16, ge=1, le=512, description="Calls at the same time.")


class EvaluationRequest(Body):
    """`POST /v1/strop/evaluations`"""

    model: str | RemoteModel = Field(
        description="A deployment, an `ft:` name, the id of a checkpoint or run, a catalogue name, a Hugging Face "
        "id, a folder; or a model elsewhere."
    )
    dataset_id: str | None = Field(None, description="The rows; either this or `file_id`.")
    file_id: str | None = Field(None, description="An uploaded file of rows.")
    rewards: Annotated[list[RewardOption], Field(min_length=1, max_length=16)] | None = Field(
        None, description="How answers are scored; by default as in `job_id`."
    )
    job_id: str | None = Field(
        None, description="A job whose rewards, `sampling`, `environment`, `eval` and seed are taken."
    )
    name: str | None = Field(None, min_length=1, max_length=200, description="By default model and data.")
    limit: int | None = Field(None, ge=1, description="Only so many of the first rows.")
    seed: int | None = Field(None, ge=0, lt=2**31, description="Evaluations with one seed meet the same chance.")
    device: Literal["auto", "cpu", "cuda"] = "auto"
    eval: Annotated[dict[str, Any], WithJsonSchema(EvalConfig.model_json_schema())] = Field({})
    sampling: Annotated[dict[str, Any], WithJsonSchema(SamplingConfig.model_json_schema())] = Field({})
    environment: Annotated[dict[str, Any], WithJsonSchema(EnvironmentConfig.model_json_schema())] = Field({})
    max_failed_rows: float | None = Field(
        None, ge=0, le=1, description="Share of rows without score that is a failure."
    )


def new_evaluation(request: EvaluationRequest, services: Services) -> NewEvaluation:
    """What to put into the queue. InvalidRequest or NotFound, with the field, for what cannot be evaluated."""
    target = _target(request.model, services)
    data, shown = _data(request, services)
    tables = _tables(request, services)
    try:
        config = evaluation_config(tables)
    except ConfigError as error:
        raise InvalidRequest(error.message.removeprefix("evaluation: "), param=error.param) from None
    spec = EvaluationSpec(target, data, request.limit, config)
    _need_variables(spec, services)
    sent = request.model_dump(mode="json", exclude_unset=True)
    name = request.name or f"{target.shown} on {shown}"
    return NewEvaluation(name, target.shown, {**spec.as_dict(), "request": sent})


def _need_variables(spec: EvaluationSpec, services: Services) -> None:
    """Refuse now what would fail once its turn has come."""
    secret = {found.name for found in services.secrets.names()}
    public = public_environment(os.environ, secret)
    for name in spec.variables:
        if name not in secret and name not in public:
            param = "model.api_key_env" if name == spec.target.api_key_env else "rewards"
            raise InvalidRequest(f"{param}: no secret of this server is called {name}; store it first", param=param)


def _target(model: str | RemoteModel, services: Services) -> Target:
    if isinstance(model, RemoteModel):
        return _remote(model, services)
    with services.database.read() as connection:
        named = (deployments.c.name == sendable(model)) | (deployments.c.id == sendable(model))
        deployed = connection.execute(sa.select(deployments).where(named)).mappings().first()
    if deployed is not None:
        place = services.folder.found(deployed["path"])
        return Target(
            kind="deployment",
            source=str(place) if place.exists() else deployed["path"],
            name=deployed["name"],
            label=deployed["name"],
            socket=f"{_UP}/{services.folder.engine_socket.name}",
        )
    if is_trained(model):
        try:
            found = find_trained(services.jobs, services.folder, model)
        except NotFound as error:
            raise InvalidRequest(f"model: {error.message}", param="model") from None
        return Target(kind="checkpoint", source=_beside(services.folder.stored(found.folder)), label=found.name)
    known = ServerLibrary(services).model(model)
    return Target(kind="base", source=known.source, label=known.name)


def _remote(model: RemoteModel, services: Services) -> Target:
    base_url, api_key_env, label = model.base_url, model.api_key_env, ""
    if (model.provider is None) == (base_url is None):
        raise InvalidRequest("model: give either provider or base_url", param="model.provider")
    if model.provider is not None:
        try:
            provider = ProviderStore(services.database).get(model.provider)
        except NotFound as error:
            raise InvalidRequest(f"model: {error.message}", param="model.provider") from None
        base_url, label = provider.base_url, f"{model.model}@{provider.name}"
        api_key_env = api_key_env or provider.api_key_env
    check_address(base_url or "", "model.base_url")
    return Target(
        kind="remote",
        source=model.model,
        label=label,
        base_url=base_url,
        api_key_env=api_key_env,
        concurrency=model.concurrency,
    )


def _data(request: EvaluationRequest, services: Services) -> tuple[str, str]:
    """The file of rows, and what people call it."""
    if (request.dataset_id is None) == (request.file_id is None):
        raise InvalidRequest("give either dataset_id or file_id", param="dataset_id")
    if request.dataset_id is not None:
        dataset = DatasetStore(services.database).get(request.dataset_id)
        file_id, shown = dataset.file_id, dataset.name
    else:
        file_id = request.file_id or ""
        shown = services.files.get(file_id).filename
    return _beside(ServerLibrary(services).data(file_id, "file_id").path), shown


def _tables(request: EvaluationRequest, services: Services) -> dict[str, Any]:
    """Tables of a configuration: those of the job, if one is named, under those of the request."""
    job: Mapping[str, Json] = {}
    if request.job_id is not None:
        job = services.jobs.get(request.job_id).config.model_dump(mode="json")
    rewards = _rewards(request, services) if request.rewards else job.get("rewards")
    if not rewards:
        raise InvalidRequest("rewards are missing: say how answers are scored, or name a job_id", param="rewards")
    seed = request.seed if request.seed is not None else job.get("seed", secrets.randbelow(2**31))
    limit = {} if request.max_failed_rows is None else {"max_failed_groups": request.max_failed_rows}
    return {
        "seed": seed,
        "device": request.device,
        "rewards": [{**reward, "source": _beside(reward["source"])} for reward in rewards],
        "eval": {**job.get("eval", {}), **request.eval},
        "sampling": {**job.get("sampling", {}), **request.sampling},
        "environment": {**job.get("environment", {}), **request.environment},
        "train": limit,
    }


def _rewards(request: EvaluationRequest, services: Services) -> list[dict[str, Any]]:
    """The tables of rewards; code and graders of the request are written to their place."""
    tables, files = reward_tables(request.rewards or [], ServerLibrary(services))
    for stored, text in files.items():
        path = services.folder.found(stored)
        if not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomic(path, text)
            os.chmod(path, 0o600)
    return tables


def _beside(stored: str) -> str:
    return stored if Path(stored).is_absolute() else f"{_UP}/{stored}"
