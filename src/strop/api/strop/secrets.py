"""`/v1/strop/secrets`"""

from __future__ import annotations

from fastapi import APIRouter

router = APIRouter()
