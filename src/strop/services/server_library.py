"""What the names in a request for a job stand for on this server."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa

from strop.errors import InvalidRequest, NotFound, ServerError
from strop.policy.catalogue import find_entry
from strop.policy.installed import chat_template, installed_folder
from strop.services.container import Services
from strop.services.job_order import DataFile, StartModel
from strop.services.reward_tables import RewardSource
from strop.services.trained import find_trained, is_trained
from strop.store.rewards import FUNCTION, RewardStore
from strop.store.tables import deployments, rewards
from strop.store.uploads import ROWS


class ServerLibrary:
    """A `translate.Library` over the services."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def data(self, file_id: str, param: str) -> DataFile:
        """A file of rows; its path is relative to the data folder, which may move."""
        with _asked_as(param):
            file = self._services.files.get(file_id)
        if file.purpose != ROWS or not file.rows:
            raise InvalidRequest(
                f"{param}: {file_id} was uploaded for {file.purpose!r}; upload JSONL rows with purpose {ROWS!r}",
                param=param,
            )
        return DataFile(self._services.folder.stored(self._services.files.path(file_id)), file.rows)

    def model(self, name: str) -> StartModel:
        """A name of the catalogue or the hub, a folder, a fine-tuned model or a checkpoint."""
        if is_trained(name):
            with _asked_as("model"):
                found = find_trained(self._services.jobs, self._services.folder, name)
            return StartModel(str(found.folder), found.name, chat_template(found.folder), found.id)
        place = installed_folder(name)
        if place is None and find_entry(name) is None and ("/" not in name or name.startswith((".", "/", "~"))):
            raise InvalidRequest(
                f"model: {name!r} is not known here; GET /v1/models lists what is on this machine, "
                "and any Hugging Face id (owner/name) or folder can be named",
                param="model",
            )
        return StartModel(name, name, None if place is None else chat_template(place))

    def reward(self, name: str, version: int | None) -> RewardSource:
        """A version of a reward, by id or name."""
        with _asked_as("strop.rewards"):
            found = RewardStore(self._services.database, self._services.folder).version(self._reward_id(name), version)
        path = self._services.folder.stored(found.path)
        return RewardSource(f"{path}:{FUNCTION}" if found.draft.kind == "python" else path, found.draft.env)

    def judge_url(self, model: str) -> str | None:
        """This server's own address where it can answer for a model."""
        with self._services.database.read() as connection:
            deployed = connection.scalar(sa.select(deployments.c.id).where(deployments.c.name == model))
        if deployed is None and not is_trained(model) and installed_folder(model) is None:
            return None
        try:
            url = self._services.folder.server_url()
        except ServerError:
            return None
        return f"{url}/v1" if url else None

    def has_variable(self, name: str) -> bool:
        """Whether a secret or a variable of the server has that name."""
        return name in os.environ or name in _secret_names(self._services)

    def _reward_id(self, name: str) -> str:
        if name.startswith("rw_"):
            return name
        with self._services.database.read() as connection:
            found = connection.scalar(sa.select(rewards.c.id).where(rewards.c.name == name))
        if found is None:
            raise NotFound(f"no reward {name!r}; GET /v1/strop/rewards lists them")
        return str(found)


def _secret_names(services: Services) -> set[str]:
    return {secret.name for secret in services.secrets.names()}


@contextmanager
def _asked_as(param: str) -> Iterator[None]:
    """What is not found is a fault of the request, in that field."""
    try:
        yield
    except NotFound as error:
        raise InvalidRequest(f"{param}: {error.message}", param=param) from None
