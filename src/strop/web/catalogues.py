"""Data sets and rewards as pages offer them: found, and made where a page needs one."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import TypeVar

from strop.api.services import Services
from strop.api.strop.datasets import (
    DatasetObject,
    NewDataset,
    SampleObject,
    create_dataset,
    list_datasets,
    list_samples,
)
from strop.data.samples.sample_sets import SAMPLES, Split, find_sample
from strop.errors import Conflict
from strop.store.names import MAX_NAME

MANY = 1000
Made = TypeVar("Made")


def all_datasets(services: Services) -> list[DatasetObject]:
    """Every data set, the newest first."""
    return list(list_datasets(services, limit=MANY).data)


@functools.cache
def samples() -> tuple[SampleObject, ...]:
    """The sample data sets; they are made by generators, which takes a moment."""
    return tuple(list_samples().data)


def named_freely(name: str, make: Callable[[str], Made]) -> Made:
    """What `make` makes under a name, with a number behind it where the name is taken."""
    name = name.strip()[: MAX_NAME - 6] or "untitled"
    for number in itertools.count(1):
        try:
            return make(name if number == 1 else f"{name} ({number})")
        except Conflict as error:
            if error.param != "name" or number > MANY:
                raise
    raise AssertionError


def dataset_of_file(services: Services, file_id: str) -> DatasetObject:
    """The data set over an uploaded file, made where there is none. NotFound for an unknown file."""
    found = next((dataset for dataset in all_datasets(services) if dataset.file_id == file_id), None)
    if found is not None:
        return found
    filename = services.files.get(file_id).filename.removesuffix(".jsonl")
    return named_freely(filename, lambda name: create_dataset(NewDataset(file_id=file_id, name=name), services))


def sample_dataset(services: Services, sample: str, split: Split) -> DatasetObject:
    """A part of a sample as a data set, made where it is not there yet."""
    filename = f"{find_sample(sample).name}-{split}.jsonl"
    found = next((dataset for dataset in all_datasets(services) if dataset.filename == filename), None)
    if found is not None:
        return found
    name = SAMPLES[sample].title if split == "train" else f"{SAMPLES[sample].title} (held out)"
    make = functools.partial(NewDataset, sample=sample, split=split)
    return named_freely(name, lambda free: create_dataset(make(name=free), services))
