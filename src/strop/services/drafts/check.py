"""Validation of a draft, and the job that it would create."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from strop.errors import StropError
from strop.services import datasets
from strop.services.container import Services
from strop.services.drafts.draft import JobDraft, request_of
from strop.services.drafts.parameters import PARAMETERS, fault_of
from strop.services.field_errors import faults
from strop.services.job_order import Order, translate
from strop.services.job_request import JobRequest, RewardOption
from strop.services.reward_tables import reward_tables
from strop.services.server_library import ServerLibrary
from strop.services.threads import in_thread
from strop.types import Json

_dataset = datasets.get.blocking


@dataclass(frozen=True)
class Checked:
    """A draft that was looked at."""

    faults: Mapping[str, str]
    """By field of the request."""
    request: Mapping[str, Json] | None = None
    """The body of `POST /v1/fine_tuning/jobs`, where nothing is wrong."""
    order: Order | None = None


@in_thread
def check(services: Services, draft: JobDraft) -> Checked:
    """Look at every part of a draft, so that each fault stands at its field. Creates nothing."""
    library = ServerLibrary(services)
    found: dict[str, str] = {}
    _note(found, "model", "choose a model", draft.model, lambda: library.model(draft.model))
    for field, dataset in (("training_file", draft.train), ("validation_file", draft.validation)):
        if dataset or field == "training_file":
            _note(found, field, "choose a data set", dataset, lambda: _dataset(services, dataset))  # noqa: B023
    if draft.validation and draft.validation == draft.train:
        found["validation_file"] = "this is the training data set; choose another one"
    for key, value in draft.values.items():
        if key in PARAMETERS and (problem := fault_of(key, value)):
            found[f"strop.{key}"] = problem
    found |= _reward_faults(draft, library)
    if found:
        return Checked(found)
    try:
        request = request_of(draft, lambda dataset: _dataset(services, dataset).file_id, usual_name(services, draft))
        return Checked({}, request, translate(JobRequest.model_validate(request), draft.seed, library))
    except (StropError, ValueError) as error:
        return Checked(faults(error))


def usual_name(services: Services, draft: JobDraft) -> str:
    """What a job is called by default: after its data set."""
    dataset = _dataset(services, draft.train)
    plain = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in dataset.name.lower())
    return "-".join(filter(None, plain.split("-"))) or "job"


def _reward_faults(draft: JobDraft, library: ServerLibrary) -> dict[str, str]:
    if not draft.rewards:
        return {"strop.rewards": "add a reward; it scores completions"}
    found: dict[str, str] = {}
    for index, part in enumerate(draft.rewards):
        where = f"strop.rewards[{index}]"
        try:
            reward_tables([RewardOption.model_validate(part.option)], library)
        except StropError as error:
            found |= {_moved(param, where): text for param, text in faults(error).items()}
        except ValueError as error:
            found |= {f"{where}.{param or 'source'}": text for param, text in faults(error).items()}
    names = [part.name for part in draft.rewards]
    for index, name in enumerate(names):
        if name in names[:index]:
            found[f"strop.rewards[{index}].name"] = "another reward has this name"
    return found


def _moved(param: str, where: str) -> str:
    """A field of the only reward of a test, as the one that it is in the draft."""
    return where + (param.removeprefix("strop.rewards[0]") if param.startswith("strop.rewards[0].") else ".source")


def _note(found: dict[str, str], field: str, missing: str, value: str, look: Callable[[], object]) -> None:
    if not value:
        found[field] = missing
        return
    try:
        look()
    except StropError as error:
        found[field] = error.message.removeprefix(f"{field}: ")
