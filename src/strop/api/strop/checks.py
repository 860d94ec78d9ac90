"""`/v1/strop/datasets/check` and `…/{id}/check`: what is in a data file, and what is wrong with it."""

from __future__ import annotations

import tempfile
from pathlib import Path

from fastapi import APIRouter, UploadFile

from strop.api.dependencies import Provided
from strop.services import data_checks
from strop.services.container import Settings
from strop.services.data_checks import Check, CheckReport

router = APIRouter()

MAX_UPLOAD_BYTES = Settings().max_upload_bytes
_FORM_BYTES = 64 * 1024


@router.post("/datasets/check", max_body_size=MAX_UPLOAD_BYTES + _FORM_BYTES)
def check_upload(file: UploadFile) -> CheckReport:
    """Look at a data file without storing it: every fault, by line."""
    with tempfile.NamedTemporaryFile(prefix="strop-check-") as copy:
        while chunk := file.file.read(1024 * 1024):
            copy.write(chunk)
        copy.flush()
        return data_checks.check_file.blocking(Path(copy.name))


@router.post("/datasets/{dataset_id}/check")
async def check_dataset(dataset_id: str, body: Check, services: Provided) -> CheckReport:
    """Count what a data set holds and, for a model, how long its prompts are."""
    return await data_checks.check_dataset(services, dataset_id, body)
