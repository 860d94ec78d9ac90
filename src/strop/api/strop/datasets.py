"""`/v1/strop/datasets` and `/v1/strop/samples`: data to train and evaluate on."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import Field

from strop.api.answers import Answer, Deleted
from strop.api.dependencies import Provided
from strop.api.paging import After, Limit, Page, page
from strop.api.rowpages import read_page
from strop.api.services import Services
from strop.api.strop import checks
from strop.api.strop.checks import dataset_path
from strop.data.rows import load_rows
from strop.data.samples.sample_sets import SAMPLES, Sample, Split, find_sample
from strop.data.split import held_out_lines
from strop.errors import InvalidRequest, StropError
from strop.http.bodies import Body
from strop.rewards.presets.index import find_preset
from strop.store.datasets import Dataset, DatasetStore
from strop.types import Row

router = APIRouter()
router.include_router(checks.router)


class DatasetObject(Answer):
    """An uploaded file with a name."""

    object: Literal["dataset"] = "dataset"
    id: str
    created_at: int
    name: str
    description: str
    file_id: str
    """The file to name in `training_file` or `validation_file` of a job."""
    filename: str
    bytes: int
    rows: int | None


class SampleObject(Answer):
    """A data set that strop makes itself, with a reward function that fits."""

    object: Literal["dataset.sample"] = "dataset.sample"
    id: str
    title: str
    description: str
    rows: dict[str, int]
    """Of each part: `train` and `validation`."""
    example: dict[str, Any]
    """Its first row."""
    reward: str
    """Python source of the reward function."""


class NewDataset(Body):
    """Either an uploaded file, or a sample."""

    name: str | None = None
    """By default that of the file or the sample."""
    description: str | None = None
    file_id: str | None = None
    sample: str | None = None
    split: Split = "train"
    """Which part of a sample."""


class DatasetChange(Body):
    """What is not given stays."""

    name: str | None = None
    description: str | None = None


class RowObject(Answer):
    """One row, as training reads it."""

    id: str
    """Names the row in runs; a repeated row gets a number behind it there."""
    line: int
    messages: list[dict[str, Any]]
    """The prompt."""
    tools: list[dict[str, Any]]
    reference: Any
    fields: dict[str, Any]
    """The row as the file has it."""


class RowList(Answer):
    """A page of rows; `next` is the `after` of the page behind it."""

    object: Literal["list"] = "list"
    data: list[RowObject]
    has_more: bool
    next: str | None


class SplitRequest(Body):
    """How to part a data set in two."""

    validation: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """Share of the prompts to hold out."""
    seed: Annotated[int, Field(ge=0)] = 17


class SplitObject(Answer):
    """The two data sets that one was parted into; it is still there itself."""

    object: Literal["dataset.split"] = "dataset.split"
    train: DatasetObject
    validation: DatasetObject


@router.get("/samples")
def list_samples() -> Page[SampleObject]:
    """The sample data sets."""
    return page([_sample(sample) for sample in SAMPLES.values()], len(SAMPLES))


@router.get("/samples/{sample_id}")
def get_sample(sample_id: str) -> SampleObject:
    """One sample data set."""
    return _sample(find_sample(sample_id))


@router.get("/datasets")
def list_datasets(
    services: Provided,
    after: After = None,
    limit: Limit = 100,
    search: Annotated[str, Query(description="Part of a name.")] = "",
) -> Page[DatasetObject]:
    """Data sets, the newest first."""
    found = _store(services).list(after, limit, search)
    return page([_shown(dataset) for dataset in found], limit)


@router.post("/datasets")
def create_dataset(body: NewDataset, services: Provided) -> DatasetObject:
    """Name an uploaded file, or make a sample."""
    if (body.file_id is None) == (body.sample is None):
        raise InvalidRequest("give either file_id, of a file uploaded to /v1/files, or sample", param="file_id")
    if body.sample is not None:
        sample = find_sample(body.sample)
        default = sample.name if body.split == "train" else f"{sample.name} (held out)"
        description = sample.description if body.description is None else body.description
        return _add(
            services, body.name or default, f"{sample.name}-{body.split}.jsonl", sample.lines(body.split), description
        )
    assert body.file_id is not None
    name = body.name or services.files.get(body.file_id).filename.removesuffix(".jsonl")
    return _shown(_store(services).create(name, body.file_id, body.description or ""))


@router.get("/datasets/{dataset_id}")
def get_dataset(dataset_id: str, services: Provided) -> DatasetObject:
    """One data set."""
    return _shown(_store(services).get(dataset_id))


@router.patch("/datasets/{dataset_id}")
def change_dataset(dataset_id: str, body: DatasetChange, services: Provided) -> DatasetObject:
    """Change the name or the description."""
    return _shown(_store(services).update(dataset_id, body.name, body.description))


@router.delete("/datasets/{dataset_id}")
def delete_dataset(
    dataset_id: str,
    services: Provided,
    file: Annotated[bool, Query(description="Delete its file as well, unless something else needs it.")] = False,
) -> Deleted:
    """Delete a data set. Refused while a job or an evaluation that is not finished needs it."""
    dataset = _store(services).delete(dataset_id)
    if file:
        with suppress(StropError):  # needed elsewhere, or gone
            services.files.delete(dataset.file_id)
    return Deleted(object="dataset", id=dataset_id)


@router.get("/datasets/{dataset_id}/rows")
def list_rows(
    dataset_id: str,
    services: Provided,
    after: Annotated[str | None, Query(description="`next` of the page before.")] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 20,
    search: Annotated[str, Query(description="Part of a row, in any case.")] = "",
) -> RowList:
    """Rows for people. A page may be short, of long rows or in a search; `has_more` tells."""
    found = read_page(dataset_path(services, dataset_id), after, limit, search)
    return RowList(data=[_row(row) for row in found.rows], has_more=found.next is not None, next=found.next)


@router.post("/datasets/{dataset_id}/split")
def split_dataset(dataset_id: str, body: SplitRequest, services: Provided) -> SplitObject:
    """Part a data set in two, so that no prompt stands in both. The same seed gives the same parts."""
    dataset, path = _store(services).get(dataset_id), dataset_path(services, dataset_id)
    held_out = held_out_lines(load_rows(path), body.validation, body.seed)
    stem = dataset.filename.removesuffix(".jsonl")
    parts = {}
    for part, of_part in (("train", False), ("validation", True)):
        with open(path, "rb") as file:
            lines = (raw for number, raw in enumerate(file, 1) if raw.strip() and (number in held_out) is of_part)
            parts[part] = _add(
                services, f"{dataset.name} ({part})", f"{stem}-{part}.jsonl", lines, f"Of {dataset.name}."
            )
    return SplitObject(**parts)


def _store(services: Services) -> DatasetStore:
    return DatasetStore(services.database)


def _add(services: Services, name: str, filename: str, lines: Iterable[bytes], description: str) -> DatasetObject:
    """A data set over a file of its own, which goes again if the name is refused."""
    file = services.files.add(filename, "fine-tune", lines)
    try:
        return _shown(_store(services).create(name, file.id, description))
    except BaseException:
        services.files.delete(file.id)
        raise


def _shown(dataset: Dataset) -> DatasetObject:
    return DatasetObject(**{**vars(dataset), "created_at": int(dataset.created_at)})


def _sample(sample: Sample) -> SampleObject:
    splits = sample.make()
    return SampleObject(
        id=sample.name,
        title=sample.title,
        description=sample.description,
        rows={"train": len(splits.train), "validation": len(splits.validation)},
        example=splits.train[0],
        reward=find_preset(sample.preset).source,
    )


def _row(row: Row) -> RowObject:
    return RowObject(
        id=row.id,
        line=row.line,
        messages=[message.as_dict() for message in row.messages],
        tools=[dict(tool) for tool in row.tools],
        reference=row.reference,
        fields=dict(row.fields),
    )
