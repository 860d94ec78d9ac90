"""`/v1/strop/datasets` and `/v1/strop/samples`: data to train and evaluate on."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, UploadFile
from pydantic import Field

from strop.api.answers import Answer, Deleted
from strop.api.bodies import Body
from strop.api.dependencies import Provided
from strop.api.lengths import PromptLengths, prompt_lengths
from strop.api.paging import After, Limit, Page, page
from strop.api.rowpages import read_page
from strop.api.services import Services, Settings
from strop.api.sources import find_trained, is_trained
from strop.data.rows import DataReport, check_rows, load_rows
from strop.data.samples.catalogue import SAMPLES, Sample, Split, find_sample
from strop.data.split import held_out_lines
from strop.errors import InvalidRequest, ModelError, StropError
from strop.policy.installed import installed_folder
from strop.store.datasets import Dataset, DatasetStore
from strop.types import Json, Row

router = APIRouter()

MAX_UPLOAD_BYTES = Settings().max_upload_bytes
_FORM_BYTES = 64 * 1024
_QUANTILES = (0.0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0)


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


class FaultObject(Answer):
    """One thing wrong with a file."""

    line: int
    """Counted from 1; 0 for the whole file."""
    kind: str
    problem: str
    remedy: str


class PromptReport(Answer):
    """The prompts of a data set as a model's tokenizer sees them."""

    model: str
    counted: int
    limit: int | None
    dropped: int | None
    """Prompts over the limit: training leaves them out."""
    quantiles: dict[str, int]
    """Tokens that this share of the prompts does not exceed."""
    lengths: list[int]
    """Tokens of each prompt, the shortest first; at most 1,000 of them, evenly chosen."""
    refused: int
    """Prompts that the chat template refuses: a job would stop."""
    first_refused: list[dict[str, Any]]


class CheckReport(Answer):
    """What a data file holds, and what is wrong with it."""

    object: Literal["dataset.check"] = "dataset.check"
    rows: int
    with_reference: int
    with_tools: int
    repeated: int
    faults: int
    fields: dict[str, int]
    """In how many rows each key has a value."""
    fault_kinds: dict[str, int]
    first_faults: list[FaultObject]
    prompts: PromptReport | None = None
    """Only where a model was named, and its tokenizer is at hand."""
    prompts_unknown: str | None = None
    """Why there is no `prompts` although a model was named."""


class Check(Body):
    """What to look at besides the rows themselves."""

    model: str | None = None
    max_prompt_tokens: Annotated[int | None, Field(ge=1)] = None
    template: Annotated[dict[str, Any], Field(default_factory=dict)]
    """Options of the chat template, as under `sampling.template`."""


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


@router.post("/datasets/check", max_body_size=MAX_UPLOAD_BYTES + _FORM_BYTES)
def check_upload(file: UploadFile) -> CheckReport:
    """Look at a data file without storing it: every fault, by line."""
    with tempfile.NamedTemporaryFile(prefix="strop-check-") as copy:
        while chunk := file.file.read(1024 * 1024):
            copy.write(chunk)
        copy.flush()
        return _report(check_rows(copy.name))


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
    found = read_page(_path(services, dataset_id), after, limit, search)
    return RowList(data=[_row(row) for row in found.rows], has_more=found.next is not None, next=found.next)


@router.post("/datasets/{dataset_id}/check")
def check_dataset(dataset_id: str, body: Check, services: Provided) -> CheckReport:
    """Count what a data set holds and, for a model, how long its prompts are."""
    path = _path(services, dataset_id)
    report = _report(check_rows(path))
    if body.model is None:
        return report
    try:
        report.prompts = _prompts(prompt_lengths(path, _model(services, body.model), body.template), body)
    except StropError as error:
        report.prompts_unknown = error.message
    return report


@router.post("/datasets/{dataset_id}/split")
def split_dataset(dataset_id: str, body: SplitRequest, services: Provided) -> SplitObject:
    """Part a data set in two, so that no prompt stands in both. The same seed gives the same parts."""
    dataset, path = _store(services).get(dataset_id), _path(services, dataset_id)
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


def _path(services: Services, dataset_id: str) -> Path:
    path: Path = services.files.path(_store(services).get(dataset_id).file_id)
    return path


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
        reward=sample.reward,
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


def _report(report: DataReport) -> CheckReport:
    found: dict[str, Json] = report.as_dict()
    return CheckReport(**{name: value for name, value in found.items() if name != "file"})


def _model(services: Services, name: str) -> Path:
    """Folder of a model. ModelError where it is not on this machine, NotFound for an unknown trained one."""
    if is_trained(name):
        return find_trained(services.jobs, services.folder, name).folder
    folder = installed_folder(name)
    if folder is None:
        raise ModelError(
            f"{name} is not on this machine, so that its tokens cannot be counted; "
            f"fetch it with: strop models pull {name}",
            param="model",
        )
    return folder


def _prompts(found: PromptLengths, asked: Check) -> PromptReport:
    count = len(found.lengths)
    shown = found.lengths if count <= 1000 else [found.lengths[place * (count - 1) // 999] for place in range(1000)]
    return PromptReport(
        model=asked.model or "",
        counted=count,
        limit=asked.max_prompt_tokens,
        dropped=None if asked.max_prompt_tokens is None else found.over(asked.max_prompt_tokens),
        quantiles={str(share): length for share in _QUANTILES if (length := found.quantile(share)) is not None},
        lengths=list(shown),
        refused=found.refused,
        first_refused=[dict(fault) for fault in found.faults],
    )
