"""`/v1/strop/rollouts`"""

from __future__ import annotations

from fastapi import APIRouter

router = APIRouter()
