"""`/v1/strop/rollouts`: one rollout whole, and the group that it belongs to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import sqlalchemy as sa
from fastapi import APIRouter
from fastapi import Path as PathParameter
from sqlalchemy import Connection

from strop.api.answers import Answer
from strop.api.dependencies import Provided
from strop.errors import RunError
from strop.policy.installed import installed_folder
from strop.services.container import Services
from strop.services.rollout_objects import RolloutFields, SegmentObject, segment_objects
from strop.store import queries
from strop.store.rollout_lines import upgraded
from strop.store.tables import runs
from strop.types import Json

router = APIRouter()

MAX_GROUP = 256
RolloutId = Annotated[str, PathParameter(description="Id of a rollout, `ro_…`.")]


class GroupMember(RolloutFields):
    """A rollout of a training run, but for its tokens."""

    object: Literal["rollout"] = "rollout"
    id: str
    run_id: str
    step: int
    row: str
    line: int
    advantage: float | None
    prompt: list[dict[str, Any]]


class WholeRollout(GroupMember):
    """A rollout with its tokens."""

    segments: list[SegmentObject]
    """Usually one; none where the tokens are unknown."""


class GroupObject(Answer):
    """All rollouts of one prompt in one step."""

    object: Literal["rollout.group"] = "rollout.group"
    run_id: str
    step: int
    row: str
    data: list[GroupMember]


@router.get("/rollouts/{rollout_id}")
def get_rollout(rollout_id: RolloutId, services: Provided) -> WholeRollout:
    """One rollout with messages, tokens, logs and timings."""
    with services.database.read() as connection:
        found = queries.whole_rollout(connection, services.folder.path, rollout_id)
        tokenizer = _tokenizer(services, connection, found["run_id"])
    with _readable(rollout_id):
        line = upgraded(found)
        return WholeRollout(**_shown(line), segments=segment_objects(line, tokenizer))


@router.get("/rollouts/{rollout_id}/group")
def get_group(rollout_id: RolloutId, services: Provided) -> GroupObject:
    """The rollouts of the same prompt in the same step, this one among them."""
    with services.database.read() as connection:
        one = queries.rollout(connection, rollout_id)
        same = queries.RolloutFilter(step=one["step"], row=one["row"])
        members = queries.rollouts_page(connection, one["run_id"], same, limit=MAX_GROUP)
        found = [queries.whole_rollout(connection, services.folder.path, member["id"]) for member in members]
    with _readable(rollout_id):
        data = sorted((GroupMember(**_shown(upgraded(member))) for member in found), key=lambda member: member.sample)
    return GroupObject(run_id=one["run_id"], step=one["step"], row=one["row"], data=data)


@contextmanager
def _readable(rollout_id: str) -> Iterator[None]:
    """Context for reading run folders, whose files may have been edited."""
    try:
        yield
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"{rollout_id} is damaged in its run folder: {error}") from None


def _shown(found: Mapping[str, Json]) -> dict[str, Any]:
    return {name: found[name] for name in GroupMember.model_fields if name in found}


def _tokenizer(services: Services, connection: Connection, run_id: str) -> Path | None:
    """A folder with the tokenizer of a run: its newest checkpoint, or the model that it started from."""
    for entry in reversed(queries.checkpoints(connection, run_id)):
        folder = services.ingester.folder(run_id) / str(entry["path"])
        if (folder / "tokenizer.json").is_file():
            return folder
    return installed_folder(str(connection.scalar(sa.select(runs.c.model).where(runs.c.id == run_id))))
