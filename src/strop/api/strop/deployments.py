"""`/v1/strop/deployments`"""

from __future__ import annotations

from fastapi import APIRouter

router = APIRouter()
