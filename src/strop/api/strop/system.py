"""`/v1/strop/system`"""

from __future__ import annotations

from fastapi import APIRouter

router = APIRouter()
