"""`/v1/strop/rewards`: the library of reward functions, its versions, and tests on rows."""

from __future__ import annotations

import difflib
import json
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query
from pydantic import Field

from strop.api.answers import Answer, Deleted
from strop.api.dependencies import Provided
from strop.api.paging import After, Limit, Page, page
from strop.api.services import Services
from strop.api.strop import trials
from strop.data.samples.sample_sets import find_sample
from strop.errors import InvalidRequest
from strop.http.bodies import Body
from strop.rewards.graders.parse import parse_grader
from strop.rewards.presets.index import Preset, find_preset, presets
from strop.store.rewards import Draft, RewardStore, RewardVersion, StoredReward

router = APIRouter()
router.include_router(trials.router)

MAX_VERSION = 1_000_000
Version = Annotated[int, Path(ge=1, le=MAX_VERSION, description="Number of a version.")]


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


@router.get("/rewards")
def list_rewards(
    services: Provided,
    after: After = None,
    limit: Limit = 100,
    search: Annotated[str, Query(description="Part of a name.")] = "",
) -> Page[RewardObject]:
    """Reward functions, the newest first."""
    return page([_shown(reward) for reward in _store(services).list(after, limit, search)], limit)


@router.post("/rewards")
def create_reward(body: NewReward, services: Provided) -> RewardObject:
    """A new reward function with its first version."""
    if body.sample is not None and body.python is None and body.grader is None:
        draft = Draft("python", find_preset(find_sample(body.sample).preset).source, tuple(body.env))
    else:
        draft = _draft(body)
    return _shown(_store(services).create(body.name, draft))


@router.get("/rewards/presets")
def list_presets() -> Page[PresetObject]:
    """Rewards to start from."""
    return page([_preset(preset) for preset in presets().values()], len(presets()))


@router.get("/rewards/{reward_id}")
def get_reward(reward_id: str, services: Provided) -> RewardObject:
    """One reward function."""
    return _shown(_store(services).get(reward_id))


@router.patch("/rewards/{reward_id}")
def change_reward(reward_id: str, body: RewardChange, services: Provided) -> RewardObject:
    """Give it another name."""
    return _shown(_store(services).rename(reward_id, body.name))


@router.delete("/rewards/{reward_id}")
def delete_reward(reward_id: str, services: Provided) -> Deleted:
    """Delete a reward with all versions. Refused while a job or an evaluation that is not finished needs it."""
    return Deleted(object="reward", id=_store(services).delete(reward_id).id)


@router.get("/rewards/{reward_id}/versions")
def list_versions(reward_id: str, services: Provided) -> Page[VersionObject]:
    """All versions, the newest first."""
    found = [_version(version) for version in _store(services).versions(reward_id)]
    return page(found, len(found))


@router.post("/rewards/{reward_id}/versions")
def add_version(reward_id: str, body: NewVersion, services: Provided) -> VersionObject:
    """The next version; where nothing would change, the newest one."""
    return _version(_store(services).add_version(reward_id, _draft(body)))


@router.get("/rewards/{reward_id}/versions/{version}")
def get_version(reward_id: str, version: Version, services: Provided) -> VersionObject:
    """One version."""
    return _version(_store(services).version(reward_id, version))


@router.get("/rewards/{reward_id}/versions/{version}/diff")
def diff_versions(
    reward_id: str,
    version: Version,
    services: Provided,
    against: Annotated[int | None, Query(ge=1, le=MAX_VERSION, description="By default the version before.")] = None,
) -> DiffObject:
    """How a version differs from an earlier or a later one."""
    other = version - 1 if against is None else against
    store = _store(services)
    old, new = store.version(reward_id, other), store.version(reward_id, version)
    before, after = old.draft.source.splitlines(), new.draft.source.splitlines()
    diff = difflib.unified_diff(before, after, f"version {other}", f"version {version}", lineterm="")
    return DiffObject(reward_id=reward_id, version=version, against=other, diff="\n".join(diff))


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
