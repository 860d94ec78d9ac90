"""Data sets: uploaded files with names, and the samples that strop makes."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field

from strop.data.rows import load_rows
from strop.data.samples.sample_sets import SAMPLES, Sample, Split, find_sample
from strop.data.split import held_out_lines
from strop.errors import Conflict, InvalidRequest, StropError
from strop.http.bodies import Body
from strop.rewards.presets.index import find_preset
from strop.services.container import Services
from strop.services.objects import Answer, Deleted, Page, page
from strop.services.rowpages import read_page
from strop.services.threads import in_thread
from strop.store.datasets import Dataset, DatasetStore
from strop.store.names import MAX_NAME
from strop.types import Row

MANY = 1000
Made = TypeVar("Made")


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


class DatasetRow(Answer):
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


class DatasetRows(Answer):
    """A page of rows; `next` is the `after` of the page behind it."""

    object: Literal["list"] = "list"
    data: list[DatasetRow]
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


@in_thread
def list_page(services: Services, after: str | None = None, limit: int = 100, search: str = "") -> Page[DatasetObject]:
    """Data sets, the newest first; `search` is part of a name."""
    return page([_shown(dataset) for dataset in _store(services).list(after, limit, search)], limit)


@in_thread
def list_all(services: Services) -> list[DatasetObject]:
    """Every data set, the newest first."""
    return [_shown(dataset) for dataset in _store(services).list(None, MANY, "")][:MANY]


@in_thread
def get(services: Services, dataset_id: str) -> DatasetObject:
    """One data set. NotFound for an unknown one."""
    return _shown(_store(services).get(dataset_id))


@in_thread
def create(services: Services, new: NewDataset) -> DatasetObject:
    """Name an uploaded file, or make a sample. Conflict where the name is taken."""
    if (new.file_id is None) == (new.sample is None):
        raise InvalidRequest("give either file_id, of a file uploaded to /v1/files, or sample", param="file_id")
    if new.sample is not None:
        sample = find_sample(new.sample)
        default = sample.name if new.split == "train" else f"{sample.name} (held out)"
        description = sample.description if new.description is None else new.description
        return _add(
            services, new.name or default, f"{sample.name}-{new.split}.jsonl", sample.lines(new.split), description
        )
    assert new.file_id is not None
    name = new.name or services.files.get(new.file_id).filename.removesuffix(".jsonl")
    return _shown(_store(services).create(name, new.file_id, new.description or ""))


@in_thread
def change(services: Services, dataset_id: str, changes: DatasetChange) -> DatasetObject:
    """Change the name or the description."""
    return _shown(_store(services).update(dataset_id, changes.name, changes.description))


@in_thread
def delete(services: Services, dataset_id: str, file: bool = False) -> Deleted:
    """Delete a data set; with `file`, its file as well, unless something else needs it.

    Conflict while a job or an evaluation that is not finished needs it.
    """
    dataset = _store(services).delete(dataset_id)
    if file:
        with suppress(StropError):  # needed elsewhere, or gone
            services.files.delete(dataset.file_id)
    return Deleted(object="dataset", id=dataset_id)


@in_thread
def list_rows(
    services: Services, dataset_id: str, after: str | None = None, limit: int = 20, search: str = ""
) -> DatasetRows:
    """Rows for people. A page may be short, of long rows or in a search; `has_more` tells."""
    found = read_page(path_of(services, dataset_id), after, limit, search)
    return DatasetRows(data=[_row(row) for row in found.rows], has_more=found.next is not None, next=found.next)


@in_thread
def split(services: Services, dataset_id: str, how: SplitRequest) -> SplitObject:
    """Split a data set in two, so that no prompt is in both. The same seed gives the same parts."""
    dataset, path = _store(services).get(dataset_id), path_of(services, dataset_id)
    held_out = held_out_lines(load_rows(path), how.validation, how.seed)
    stem = dataset.filename.removesuffix(".jsonl")
    parts = {}
    for part, of_part in (("train", False), ("validation", True)):
        with open(path, "rb") as file:
            lines = (raw for number, raw in enumerate(file, 1) if raw.strip() and (number in held_out) is of_part)
            parts[part] = _add(
                services, f"{dataset.name} ({part})", f"{stem}-{part}.jsonl", lines, f"Of {dataset.name}."
            )
    return SplitObject(**parts)


@in_thread
@functools.cache
def samples() -> tuple[SampleObject, ...]:
    """The sample data sets; they are made by generators, which takes a moment."""
    return tuple(_sample(sample) for sample in SAMPLES.values())


@in_thread
def sample(name: str) -> SampleObject:
    """One sample data set. NotFound for an unknown one."""
    return _sample(find_sample(name))


@in_thread
def of_file(services: Services, file_id: str) -> DatasetObject:
    """The data set over an uploaded file, made where there is none. NotFound for an unknown file."""
    found = next((dataset for dataset in list_all.blocking(services) if dataset.file_id == file_id), None)
    if found is not None:
        return found
    filename = services.files.get(file_id).filename.removesuffix(".jsonl")
    return named_freely(filename, lambda name: create.blocking(services, NewDataset(file_id=file_id, name=name)))


@in_thread
def of_sample(services: Services, name: str, split: Split) -> DatasetObject:
    """A part of a sample as a data set, made where it is not there yet."""
    filename = f"{find_sample(name).name}-{split}.jsonl"
    found = next((dataset for dataset in list_all.blocking(services) if dataset.filename == filename), None)
    if found is not None:
        return found
    title = SAMPLES[name].title if split == "train" else f"{SAMPLES[name].title} (held out)"
    make = functools.partial(NewDataset, sample=name, split=split)
    return named_freely(title, lambda free: create.blocking(services, make(name=free)))


def path_of(services: Services, dataset_id: str) -> Path:
    """Where the file of a data set lies; blocks. NotFound for an unknown one."""
    return services.files.path(_store(services).get(dataset_id).file_id)


def named_freely(name: str, make: Callable[[str], Made]) -> Made:
    """What `make` makes under a name, with a number behind it where the name is taken; blocks."""
    name = name.strip()[: MAX_NAME - 6] or "untitled"
    for number in itertools.count(1):
        try:
            return make(name if number == 1 else f"{name} ({number})")
        except Conflict as error:
            if error.param != "name" or number > MANY:
                raise
    raise AssertionError


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


def _row(row: Row) -> DatasetRow:
    return DatasetRow(
        id=row.id,
        line=row.line,
        messages=[message.as_dict() for message in row.messages],
        tools=[dict(tool) for tool in row.tools],
        reference=row.reference,
        fields=dict(row.fields),
    )
