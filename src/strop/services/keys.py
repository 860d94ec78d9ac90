"""Keys for clients on other machines."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from strop.http.bodies import Body
from strop.services.container import Services
from strop.services.threads import in_thread
from strop.store import keys
from strop.store.keys import MAX_NAME

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


@in_thread
def list_all(services: Services) -> list[Key]:
    """All keys, revoked ones too, the newest first."""
    return [Key.of(key) for key in services.keys.list()]


@in_thread
def create(services: Services, name: str) -> CreatedKey:
    """Make a key. Only this answer holds its text. InvalidRequest for a bad name."""
    key, text = services.keys.create(name)
    return CreatedKey(**Key.of(key).model_dump(), key=text)


@in_thread
def knows(services: Services, text: str) -> bool:
    """Whether the text is that of a key that was not revoked."""
    return services.keys.verify(text) is not None


@in_thread
def revoke(services: Services, key_id: str) -> Key:
    """Revoke a key; it stays in the list. NotFound for an unknown one."""
    return Key.of(services.keys.revoke(key_id))


def _second(time: float | None) -> int | None:
    return None if time is None else int(time)
