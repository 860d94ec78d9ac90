"""`/v1/strop/checkpoints`"""

from __future__ import annotations

from fastapi import APIRouter

router = APIRouter()
