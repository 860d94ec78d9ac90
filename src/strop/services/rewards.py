"""The library of reward functions and their versions."""

from __future__ import annotations

import difflib
import json
from typing import Annotated, Any, Literal

from pydantic import Field

from strop.data.samples.sample_sets import find_sample
from strop.errors import InvalidRequest
from strop.http.bodies import Body
from strop.rewards.graders.parse import parse_grader
from strop.rewards.presets.index import Preset, find_preset, presets
from strop.services.container import Services
from strop.services.datasets import named_freely
from strop.services.objects import Answer, Deleted, Page, page
from strop.services.threads import in_thread
from strop.store.rewards import Draft, RewardStore, RewardVersion, StoredReward

MAX_VERSION = 1_000_000


class RewardObject(Answer):
    """A reward function of this server; its id or name stands in `strop.rewards` of a job."""

    object: Literal["reward"] = "reward"
    id: str
    name: str
    latest: int
    """Its newest version, counted from 1."""
    kind: Literal["python", "grader"]
    env: list[str]
    """Secrets that the newest version gets to see."""
    created_at: int
    updated_at: int


class VersionObject(Answer):
    """One version; it never changes."""

    object: Literal["reward.version"] = "reward.version"
    id: str
    reward_id: str
    version: int
    kind: Literal["python", "grader"]
    python: str | None
    """Source, of kind `python`."""
    grader: dict[str, Any] | None
    """Of kind `grader`."""
    env: list[str]
    created_at: int


class PresetObject(Answer):
    """A reward to start from."""

    object: Literal["reward.preset"] = "reward.preset"
    id: str
    title: str
    description: str
    kind: Literal["python", "grader"]
    python: str | None
    """Source, of kind `python`."""
    grader: dict[str, Any] | None
    """Of kind `grader`."""
    needs: list[str]
    """Paths that every row must have, such as `metadata.tests`; `reference` is the reference answer."""


class NewVersion(Body):
    """Python source that defines `grade(sample, item)`, or a grader in OpenAI's form."""

    python: str | None = None
    grader: dict[str, Any] | None = None
    env: Annotated[list[str], Field(default_factory=list, description="Names of secrets that it gets to see.")]


class NewReward(NewVersion):
    """A first version with a name; `sample` stands for the reward of a sample data set."""

    name: str
    sample: str | None = None


class RewardChange(Body):
    """What of a reward may change besides its versions."""

    name: str


class DiffObject(Answer):
    """How one version differs from another."""

    object: Literal["reward.diff"] = "reward.diff"
    reward_id: str
    version: int
    against: int
    diff: str
    """In unified form; empty where the sources are the same."""


@in_thread
def list_page(services: Services, after: str | None = None, limit: int = 100, search: str = "") -> Page[RewardObject]:
    """Reward functions, the newest first; `search` is part of a name."""
    return page([_shown(reward) for reward in _store(services).list(after, limit, search)], limit)


@in_thread
def get(services: Services, reward_id: str) -> RewardObject:
    """One reward function. NotFound for an unknown one."""
    return _shown(_store(services).get(reward_id))


@in_thread
def create(services: Services, new: NewReward) -> RewardObject:
    """Store a new reward function with its first version. Conflict where the name is taken."""
    if new.sample is not None and new.python is None and new.grader is None:
        draft = Draft("python", find_preset(find_sample(new.sample).preset).source, tuple(new.env))
    else:
        draft = _draft(new)
    return _shown(_store(services).create(new.name, draft))


@in_thread
def create_named_freely(services: Services, new: NewReward) -> RewardObject:
    """Store a new reward function, with a number behind its name where that is taken."""
    return named_freely(new.name, lambda name: create.blocking(services, new.model_copy(update={"name": name})))


@in_thread
def rename(services: Services, reward_id: str, changes: RewardChange) -> RewardObject:
    """Give a reward another name."""
    return _shown(_store(services).rename(reward_id, changes.name))


@in_thread
def delete(services: Services, reward_id: str) -> Deleted:
    """Delete a reward with all versions. Conflict while a job or an evaluation that is not finished needs it."""
    return Deleted(object="reward", id=_store(services).delete(reward_id).id)


@in_thread
def versions(services: Services, reward_id: str) -> list[VersionObject]:
    """All versions, the newest first."""
    return [_version(version) for version in _store(services).versions(reward_id)]


@in_thread
def add_version(services: Services, reward_id: str, new: NewVersion) -> VersionObject:
    """Store the next version; where nothing would change, the newest one is given."""
    return _version(_store(services).add_version(reward_id, _draft(new)))


@in_thread
def version(services: Services, reward_id: str, number: int) -> VersionObject:
    """One version."""
    return _version(_store(services).version(reward_id, number))


@in_thread
def diff(services: Services, reward_id: str, number: int, against: int | None = None) -> DiffObject:
    """The difference between a version and another one, by default the version before it."""
    other = number - 1 if against is None else against
    store = _store(services)
    old, new = store.version(reward_id, other), store.version(reward_id, number)
    before, after = old.draft.source.splitlines(), new.draft.source.splitlines()
    lines = difflib.unified_diff(before, after, f"version {other}", f"version {number}", lineterm="")
    return DiffObject(reward_id=reward_id, version=number, against=other, diff="\n".join(lines))


def preset_objects() -> list[PresetObject]:
    """Rewards to start from; instant."""
    return [_preset(preset) for preset in presets().values()]


def _store(services: Services) -> RewardStore:
    return RewardStore(services.database, services.folder)


def _draft(body: NewVersion) -> Draft:
    if (body.python is None) == (body.grader is None):
        raise InvalidRequest("give either python, the source of a file, or grader, an object", param="python")
    if body.grader is not None:
        parse_grader(body.grader)
        source = json.dumps(body.grader, ensure_ascii=False, indent=2) + "\n"
        return Draft("grader", source, tuple(body.env))
    return Draft("python", body.python or "", tuple(body.env))


def _shown(reward: StoredReward) -> RewardObject:
    times = {"created_at": int(reward.created_at), "updated_at": int(reward.updated_at)}
    return RewardObject(**{**vars(reward), "env": list(reward.env), **times})


def _version(found: RewardVersion) -> VersionObject:
    draft = found.draft
    return VersionObject(
        id=f"{found.reward_id}:{found.version}",
        reward_id=found.reward_id,
        version=found.version,
        kind=draft.kind,
        python=draft.source if draft.kind == "python" else None,
        grader=json.loads(draft.source) if draft.kind == "grader" else None,
        env=list(draft.env),
        created_at=int(found.created_at),
    )


def _preset(preset: Preset) -> PresetObject:
    return PresetObject(
        id=preset.name,
        title=preset.title,
        description=preset.description,
        kind=preset.kind,
        python=preset.source if preset.kind == "python" else None,
        grader=json.loads(preset.source) if preset.kind == "grader" else None,
        needs=list(preset.needs),
    )
