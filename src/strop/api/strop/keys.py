"""`/v1/strop/keys`: keys for clients on other machines."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field

from strop.api.dependencies import Provided
from strop.api.paging import Page, page
from strop.http.bodies import Body
from strop.store import keys
from strop.store.keys import MAX_NAME

router = APIRouter(prefix="/keys")

_TIMES = ("created_at", "last_used_at", "revoked_at")


class NewKey(Body):
    """What a key is made from."""

    name: str = Field(min_length=1, max_length=MAX_NAME, description="For people: who or what uses it.")


class Key(BaseModel):
    """A key, without its text."""

    object: Literal["strop.key"] = "strop.key"
    id: str
    name: str
    prefix: str = Field(description="Its first characters, to recognise it by.")
    created_at: int
    last_used_at: int | None = Field(description="To the minute.")
    revoked_at: int | None

    @classmethod
    def of(cls, key: keys.Key) -> Key:
        return cls.model_validate({**vars(key), **{name: _second(getattr(key, name)) for name in _TIMES}})


class CreatedKey(Key):
    """A new key with its text, which no other answer holds."""

    key: str = Field(description="Send it as `Authorization: Bearer …`. It is not shown again.")


@router.post("", status_code=201)
def create_key(body: NewKey, services: Provided) -> CreatedKey:
    """Make a key. Its text is in this answer only."""
    key, text = services.keys.create(body.name)
    return CreatedKey(**Key.of(key).model_dump(), key=text)


@router.get("")
def list_keys(services: Provided) -> Page[Key]:
    """All keys, revoked ones too, the newest first."""
    found = [Key.of(key) for key in services.keys.list()]
    return page(found, len(found))


@router.delete("/{key_id}")
def revoke_key(key_id: str, services: Provided) -> Key:
    """End a key for good. It stays in the list."""
    return Key.of(services.keys.revoke(key_id))


def _second(time: float | None) -> int | None:
    return None if time is None else int(time)
