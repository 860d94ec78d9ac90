"""`/v1/strop/rewards`: the library of reward functions, its versions, and tests on rows."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query

from strop.api.answers import Deleted
from strop.api.dependencies import Provided
from strop.api.paging import After, Limit, Page, page
from strop.services import reward_tests, rewards
from strop.services.reward_tests import TrialObject, TrialRequest
from strop.services.rewards import (
    MAX_VERSION,
    DiffObject,
    NewReward,
    NewVersion,
    PresetObject,
    RewardChange,
    RewardObject,
    VersionObject,
)

router = APIRouter()

Version = Annotated[int, Path(ge=1, le=MAX_VERSION, description="Number of a version.")]


@router.post("/rewards/test")
async def test_rewards(body: TrialRequest, services: Provided) -> TrialObject:
    """Score answers as training would, in processes of their own and in bounded time.

    A reward that cannot be loaded is an error; one that fails on an answer says so there.
    """
    return await reward_tests.run(services, body)


@router.get("/rewards")
async def list_rewards(
    services: Provided,
    after: After = None,
    limit: Limit = 100,
    search: Annotated[str, Query(description="Part of a name.")] = "",
) -> Page[RewardObject]:
    """Reward functions, the newest first."""
    return await rewards.list_page(services, after, limit, search)


@router.post("/rewards")
async def create_reward(body: NewReward, services: Provided) -> RewardObject:
    """A new reward function with its first version."""
    return await rewards.create(services, body)


@router.get("/rewards/presets")
async def list_presets() -> Page[PresetObject]:
    """Rewards to start from."""
    found = rewards.preset_objects()
    return page(found, len(found))


@router.get("/rewards/{reward_id}")
async def get_reward(reward_id: str, services: Provided) -> RewardObject:
    """One reward function."""
    return await rewards.get(services, reward_id)


@router.patch("/rewards/{reward_id}")
async def change_reward(reward_id: str, body: RewardChange, services: Provided) -> RewardObject:
    """Give it another name."""
    return await rewards.rename(services, reward_id, body)


@router.delete("/rewards/{reward_id}")
async def delete_reward(reward_id: str, services: Provided) -> Deleted:
    """Delete a reward with all versions. Refused while a job or an evaluation that is not finished needs it."""
    return await rewards.delete(services, reward_id)


@router.get("/rewards/{reward_id}/versions")
async def list_versions(reward_id: str, services: Provided) -> Page[VersionObject]:
    """All versions, the newest first."""
    found = await rewards.versions(services, reward_id)
    return page(found, len(found))


@router.post("/rewards/{reward_id}/versions")
async def add_version(reward_id: str, body: NewVersion, services: Provided) -> VersionObject:
    """The next version; where nothing would change, the newest one."""
    return await rewards.add_version(services, reward_id, body)


@router.get("/rewards/{reward_id}/versions/{version}")
async def get_version(reward_id: str, version: Version, services: Provided) -> VersionObject:
    """One version."""
    return await rewards.version(services, reward_id, version)


@router.get("/rewards/{reward_id}/versions/{version}/diff")
async def diff_versions(
    reward_id: str,
    version: Version,
    services: Provided,
    against: Annotated[int | None, Query(ge=1, le=MAX_VERSION, description="By default the version before.")] = None,
) -> DiffObject:
    """How a version differs from an earlier or a later one."""
    return await rewards.diff(services, reward_id, version, against)
