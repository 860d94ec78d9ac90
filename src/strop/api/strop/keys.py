"""`/v1/strop/keys`"""

from __future__ import annotations

from fastapi import APIRouter

router = APIRouter()
