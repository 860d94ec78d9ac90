"""What a deployment stands for: from the names that clients use to what the model process loads."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from strop.errors import ConfigError, ModelError, NotFound, RunError
from strop.jobs.job import JobQueue
from strop.policy.catalogue import find_entry
from strop.policy.weights import whole_folder
from strop.services.trained import find_trained, is_trained
from strop.store.checkpoints import MANIFEST
from strop.store.datafolder import DataFolder
from strop.store.deployments import StoredDeployment
from strop.store.rundir import RunDir
from strop.store.trained import trained_at
from strop.types import Json

log = logging.getLogger("strop.server")

_LIST = "GET /v1/models lists what this server can answer with"


@dataclass(frozen=True)
class Place:
    """A model that can be loaded, or fetched and then loaded."""

    name: str
    """What a deployment of it is called by default."""
    source: str
    """Catalogue name, hub id, folder, or id of a checkpoint."""
    path: str
    """Its folder as `DataFolder.stored`; the name once more where it is still to be fetched."""

    def loadable(self, folder: DataFolder) -> str:
        """The model that the model process must load."""
        return self.source if self._is_name else str(folder.found(self.path))

    def settled(self, folder: DataFolder) -> Place:
        """The same, now that it was fetched."""
        place = whole_folder(self.source) if self._is_name else None
        return replace(self, path=folder.stored(place)) if place else self

    @property
    def _is_name(self) -> bool:
        return self.path == self.source and not Path(self.path).is_absolute()


def deployable(jobs: JobQueue, folder: DataFolder, source: str) -> Place:
    """What a client asks to deploy: any source. NotFound or ModelError where there is no such model,
    CheckpointError where it is damaged."""
    if is_trained(source):
        return _trained(jobs, folder, source)
    entry = find_entry(source)
    if entry is not None:
        return _named(folder, entry.name)
    if source.startswith((".", "/", "~")) or Path(source).is_dir():
        return _at(folder, Path(source).expanduser().resolve())
    if "/" in source:
        return _named(folder, source)
    raise NotFound(f"no model {source!r}: {_LIST}; a Hugging Face id or a folder can be named too", param="model")


def on_demand(jobs: JobQueue, folder: DataFolder, model: str) -> Place:
    """What a chat request may deploy by itself: what strop trained, and named models that are here.

    Refuse folders: chat clients must not read paths of the server. NotFound for anything else.
    """
    if is_trained(model):
        return _trained(jobs, folder, model)
    entry = find_entry(model)
    is_hub_id = "/" in model and not model.startswith((".", "/", "~")) and not Path(model).exists()
    if entry is None and not is_hub_id:
        raise NotFound(f"no model {model!r}: {_LIST}", param="model")
    place = _named(folder, entry.name if entry else model)
    if whole_folder(place.source) is None:
        raise NotFound(
            f"{model} is not on this machine; fetch it with `strop models pull {place.source}`, or deploy it",
            param="model",
        )
    return place


def follow(jobs: JobQueue, folder: DataFolder, row: StoredDeployment) -> Place:
    """What a deployment stands for now. Under a model's own name that is its best checkpoint of the
    moment; under a name that a client chose, what was deployed. Checkpoints are checked for damage.
    """
    if is_trained(row.name) or is_trained(row.source):
        place = _trained(jobs, folder, row.name if is_trained(row.name) else row.source)
        trained_at(folder.found(place.path), log.warning)
        return place
    if Path(row.source).is_absolute():
        return _at(folder, Path(row.source))
    return _named(folder, row.source)


def template_of(place: Place, folder: DataFolder) -> Mapping[str, Json]:
    """Options that the prompts of a checkpoint's training were rendered with; none for other models."""
    path = folder.found(place.path)
    if not (path / MANIFEST).is_file():
        return {}
    try:
        return RunDir.open(path.resolve().parents[1]).config().sampling.template
    except (RunError, ConfigError) as error:  # a checkpoint that was taken elsewhere
        log.info("%s: no configuration of its training: %s", place.name, error.message)
        return {}


def _trained(jobs: JobQueue, folder: DataFolder, text: str) -> Place:
    found = find_trained(jobs, folder, text)
    if not found.folder.is_dir():
        raise NotFound(f"{text}: {found.folder} is gone", param="model")
    return Place(text if text.startswith("ft:") else found.name, found.id, folder.stored(found.folder))


def _named(folder: DataFolder, name: str) -> Place:
    place = whole_folder(name)
    return Place(name, name, folder.stored(place) if place else name)


def _at(folder: DataFolder, path: Path) -> Place:
    """A folder of a model, a run, or a checkpoint. The best checkpoint of a run is meant for good."""
    checkpoint = trained_at(path, log.warning)
    if checkpoint is not None:
        run = checkpoint.path.parents[1].name
        return Place(f"{run}-step-{checkpoint.step}", str(checkpoint.path), folder.stored(checkpoint.path))
    if whole_folder(str(path)) is None:
        raise ModelError(
            f"{path}: no model there; expected config.json or adapter_config.json, with *.safetensors, "
            "and the base of an adapter on this machine",
            param="model",
        )
    return Place(path.name, str(path), folder.stored(path))
