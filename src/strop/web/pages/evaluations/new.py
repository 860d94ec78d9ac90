"""`/evaluate` (not below `/evaluations/`, where ids stand): which model, on which rows, scored how."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from nicegui import run, ui

from strop.api.evaluation_request import EvaluationRequest, new_evaluation
from strop.errors import InvalidRequest, StropError
from strop.store import queries
from strop.store.rewards import RewardStore
from strop.web.catalogues import MANY, all_datasets
from strop.web.context import Address, services
from strop.web.faults import faults
from strop.web.forms import Complaining, Complaint, choice_field, complain, number_field, text_field
from strop.web.models import chat_models
from strop.web.providers import ProviderChoice
from strop.web.theme import button, page, tag, tag_text

_TOKENS = "sampling.max_completion_tokens"
_INSTEAD = "Instead of those of a job."
_NUMBERS = {
    "eval.samples": ("Answers to each row", "More of them make the figures surer."),
    "eval.temperature": ("Temperature", "0 takes the likeliest token each time."),
    _TOKENS: ("Maximum response length", "In tokens."),
    "limit": ("Only the first rows", "Empty for all of them."),
}
"""Numbers that are asked for, by the names that the server has for them."""


@ui.page("/evaluate")
async def new_evaluation_page() -> None:
    """A form; `?checkpoint=` fills in a checkpoint."""
    address = Address.of_page()
    names = await chat_models()
    with page("New evaluation", "Evaluations"):
        tag_text("h1", "New evaluation")
        Form(address.values.get("checkpoint", ""), names)


class Form:
    """What is asked, and the fault of what was answered."""

    def __init__(self, checkpoint: str, names: list[str]) -> None:
        given = services()
        self._values: dict[str, Any] = {"model": checkpoint, "job_id": _job_of(checkpoint) if checkpoint else None}
        self._numbers: dict[str, float | None] = {"eval.samples": 4, "eval.temperature": 1, _TOKENS: 256, "limit": None}
        datasets = {found.id: f"{found.name} ({found.rows or '?'} rows)" for found in all_datasets(given)}
        rewards = [found.name for found in RewardStore(given.database, given.folder).list(limit=MANY)]
        jobs = {job.id: job.name for job in given.jobs.list(limit=MANY)}
        with tag("form", "s-column s-form") as form:
            with _part("Model"):
                model = text_field("Model, checkpoint or deployment", checkpoint, self._keep("model"))
                model.set_autocomplete(names)
                with tag("details"):
                    tag_text("summary", "A model elsewhere, behind an OpenAI-compatible endpoint")
                    self._elsewhere = ProviderChoice(model)
            with _part("Rows"):
                data = choice_field("Dataset", datasets, None, self._keep("dataset_id"))
                data.props("use-input input-debounce=0 fill-input hide-selected")
                with tag("div", "s-fields"):
                    numbers = {name: self._number(name, label, hint) for name, (label, hint) in _NUMBERS.items()}
            with _part("Rewards"), tag("div", "s-fields s-wide-fields"):
                job = choice_field("As in job", jobs, self._values["job_id"], self._keep("job_id"))
                job.props("clearable")
                own = choice_field("Rewards", rewards, [], self._keep("rewards"), hint=_INSTEAD, several=True)
            self._others = Complaint()
            self._control = button("Start", lambda: None, "primary").props("type=submit")
        self._fields: dict[str, Complaining] = {
            **{"model": model, "dataset_id": data, "job_id": job, "rewards": own},
            **numbers,
        }
        form.on("submit.prevent", self._start, args=[])

    def _keep(self, name: str) -> Callable[[Any], None]:
        def kept(value: Any) -> None:
            self._values[name] = value

        return kept

    def _number(self, name: str, label: str, hint: str) -> Complaining:
        def kept(value: float | None) -> None:
            self._numbers[name] = value

        return number_field(label, self._numbers[name], kept, hint=hint)

    async def _start(self) -> None:
        self._control.disable()
        try:
            made = await run.io_bound(_create, self._request())
        except (StropError, ValueError) as error:
            self._show(faults(error))
            self._control.enable()
        else:
            ui.navigate.to(f"/evaluations/{made}")

    def _show(self, found: dict[str, str]) -> None:
        """Each fault where it belongs: at the field whose name it begins with, or below them all."""
        left = dict(found)
        for name, field in self._fields.items():
            mine = [fault for fault in left if fault == name or fault.startswith((f"{name}.", f"{name}["))]
            complain(field, "; ".join(left.pop(fault) for fault in mine))
        self._others.error = "\n".join(f"{name}: {message}" if name else message for name, message in left.items())

    def _request(self) -> EvaluationRequest:
        """ValueError for what is no request."""
        name, elsewhere = (self._values["model"] or "").strip(), self._elsewhere.value
        if not name:
            raise InvalidRequest("say which model is asked", param="model")
        if not self._values.get("dataset_id"):
            raise InvalidRequest("choose the rows that it answers", param="dataset_id")
        tables: dict[str, dict[str, float]] = {"eval": {}, "sampling": {}}
        for field, value in self._numbers.items():
            table, _, key = field.rpartition(".")
            if table and value is not None:
                tables[table][key] = _whole(value)
        return EvaluationRequest.model_validate(
            {
                "model": {"model": name, **elsewhere} if elsewhere else name,
                "dataset_id": self._values["dataset_id"],
                "job_id": self._values["job_id"] or None,
                "rewards": [{"name": reward, "reward": reward} for reward in self._values.get("rewards") or ()] or None,
                "limit": self._numbers["limit"],
                **tables,
            }
        )


def _whole(value: float) -> float:
    return int(value) if float(value).is_integer() else value


@contextmanager
def _part(title: str) -> Iterator[None]:
    with tag("section", "s-card"):
        tag_text("h2", title)
        yield


def _create(request: EvaluationRequest) -> str:
    given = services()
    return given.evaluations.create(new_evaluation(request, given)).id


def _job_of(checkpoint: str) -> str | None:
    """The job that a checkpoint came from: its rewards are the ones to ask."""
    given = services()
    with given.database.read() as connection:
        try:
            run_id = queries.checkpoint(connection, checkpoint)["run_id"]
        except StropError:
            return None
    return next((job.id for job in given.jobs.list(limit=1000) if job.run_id == run_id), None)
