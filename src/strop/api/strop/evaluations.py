"""`/v1/strop/evaluations`"""

from __future__ import annotations

from fastapi import APIRouter

router = APIRouter()
