"""`/v1/strop/datasets` and `/v1/strop/samples`: data to train and evaluate on."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from strop.api.answers import Deleted
from strop.api.dependencies import Provided
from strop.api.paging import After, Limit, Page, page
from strop.api.strop import checks
from strop.services import datasets
from strop.services.datasets import (
    DatasetChange,
    DatasetObject,
    DatasetRows,
    NewDataset,
    SampleObject,
    SplitObject,
    SplitRequest,
)

router = APIRouter()
router.include_router(checks.router)


@router.get("/samples")
async def list_samples() -> Page[SampleObject]:
    """The sample data sets."""
    found = await datasets.samples()
    return page(found, len(found))


@router.get("/samples/{sample_id}")
async def get_sample(sample_id: str) -> SampleObject:
    """One sample data set."""
    return await datasets.sample(sample_id)


@router.get("/datasets")
async def list_datasets(
    services: Provided,
    after: After = None,
    limit: Limit = 100,
    search: Annotated[str, Query(description="Part of a name.")] = "",
) -> Page[DatasetObject]:
    """Data sets, the newest first."""
    return await datasets.list_page(services, after, limit, search)


@router.post("/datasets")
async def create_dataset(body: NewDataset, services: Provided) -> DatasetObject:
    """Name an uploaded file, or make a sample."""
    return await datasets.create(services, body)


@router.get("/datasets/{dataset_id}")
async def get_dataset(dataset_id: str, services: Provided) -> DatasetObject:
    """One data set."""
    return await datasets.get(services, dataset_id)


@router.patch("/datasets/{dataset_id}")
async def change_dataset(dataset_id: str, body: DatasetChange, services: Provided) -> DatasetObject:
    """Change the name or the description."""
    return await datasets.change(services, dataset_id, body)


@router.delete("/datasets/{dataset_id}")
async def delete_dataset(
    dataset_id: str,
    services: Provided,
    file: Annotated[bool, Query(description="Delete its file as well, unless something else needs it.")] = False,
) -> Deleted:
    """Delete a data set. Refused while a job or an evaluation that is not finished needs it."""
    return await datasets.delete(services, dataset_id, file)


@router.get("/datasets/{dataset_id}/rows")
async def list_rows(
    dataset_id: str,
    services: Provided,
    after: Annotated[str | None, Query(description="`next` of the page before.")] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 20,
    search: Annotated[str, Query(description="Part of a row, in any case.")] = "",
) -> DatasetRows:
    """Rows for people. A page may be short, of long rows or in a search; `has_more` tells."""
    return await datasets.list_rows(services, dataset_id, after, limit, search)


@router.post("/datasets/{dataset_id}/split")
async def split_dataset(dataset_id: str, body: SplitRequest, services: Provided) -> SplitObject:
    """Split a data set in two, so that no prompt is in both. The same seed gives the same parts."""
    return await datasets.split(services, dataset_id, body)
