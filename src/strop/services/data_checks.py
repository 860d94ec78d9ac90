"""What is in a data file, what is wrong with it, and how long its prompts are for a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from strop.data.rows import DataReport, check_rows
from strop.errors import ModelError, StropError
from strop.http.bodies import Body
from strop.policy.installed import installed_folder
from strop.services.container import Services
from strop.services.datasets import path_of
from strop.services.objects import Answer
from strop.services.prompt_lengths import PromptLengths, prompt_lengths
from strop.services.threads import in_thread
from strop.services.trained import find_trained, is_trained
from strop.types import Json

_QUANTILES = (0.0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0)


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
    """Present only if a model was named and its tokenizer is available."""
    prompts_unknown: str | None = None
    """Why there is no `prompts` although a model was named."""


class Check(Body):
    """What to look at besides the rows themselves."""

    model: str | None = None
    max_prompt_tokens: Annotated[int | None, Field(ge=1)] = None
    template: Annotated[dict[str, Any], Field(default_factory=dict)]
    """Options of the chat template, as under `sampling.template`."""


@in_thread
def check_file(path: Path) -> CheckReport:
    """Look at a data file: every fault, by line."""
    return _report(check_rows(path))


@in_thread
def check_dataset(services: Services, dataset_id: str, wanted: Check) -> CheckReport:
    """Count what a data set holds and, for a model, how long its prompts are."""
    path = path_of(services, dataset_id)
    report = _report(check_rows(path))
    if wanted.model is None:
        return report
    try:
        report.prompts = _prompts(
            prompt_lengths(services.lengths, path, _model(services, wanted.model), wanted.template), wanted
        )
    except StropError as error:
        report.prompts_unknown = error.message
    return report


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
