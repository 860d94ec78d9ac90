"""`/v1/strop/keys`: keys for clients on other machines."""

from __future__ import annotations

from fastapi import APIRouter

from strop.api.dependencies import Provided
from strop.api.paging import Page, page
from strop.services import keys
from strop.services.keys import CreatedKey, Key, NewKey

router = APIRouter(prefix="/keys")


@router.post("", status_code=201)
async def create_key(body: NewKey, services: Provided) -> CreatedKey:
    """Make a key. Its text is in this answer only."""
    return await keys.create(services, body.name)


@router.get("")
async def list_keys(services: Provided) -> Page[Key]:
    """All keys, revoked ones too, the newest first."""
    found = await keys.list_all(services)
    return page(found, len(found))


@router.delete("/{key_id}")
async def revoke_key(key_id: str, services: Provided) -> Key:
    """End a key for good. It stays in the list."""
    return await keys.revoke(services, key_id)
