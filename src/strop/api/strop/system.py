"""`/v1/strop/system`: what the server runs on and how far it isolates what it runs."""

from __future__ import annotations

from fastapi import APIRouter

from strop.api.dependencies import Provided
from strop.services import system
from strop.services.system import System

router = APIRouter(prefix="/system")


@router.get("")
async def get_system(services: Provided) -> System:
    """Devices, memory, disk, versions, and how rewards are isolated."""
    return await system.get(services)
