"""`/evaluate` (not below `/evaluations/`, where ids stand): which model, on which rows, scored how."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from nicegui import ui

from strop.errors import InvalidRequest, StropError
from strop.services import evaluations, jobs, models, providers
from strop.services.evaluation_choices import EvaluationChoices, choices
from strop.services.evaluation_request import EvaluationRequest
from strop.services.field_errors import faults
from strop.services.providers import Provider
from strop.web.context import Address, services
from strop.web.forms import Complaining, Complaint, choice_field, complain, number_field, text_field
from strop.web.providers import ProviderChoice
from strop.web.theme import button, page, tag, tag_text

_TOKENS = "sampling.max_completion_tokens"
_INSTEAD = "Used instead of a job's rewards."
_NUMBERS = {
    "eval.samples": ("Completions per row", "More completions give narrower confidence intervals."),
    "eval.temperature": ("Temperature", "0 takes the likeliest token each time."),
    _TOKENS: ("Max response length", "In tokens."),
    "limit": ("Max rows", "Only the first rows are used. Leave empty for all rows."),
}
"""Numbers that are asked for, by the names that the server has for them."""


@ui.page("/evaluate")
async def new_evaluation_page() -> None:
    """A form; `?checkpoint=` fills in a checkpoint."""
    address = Address.of_page()
    names = await models.chat_names(services())
    with page("New evaluation", "Evaluations"):
        tag_text("h1", "New evaluation")
        checkpoint = address.values.get("checkpoint", "")
        Form(checkpoint, names, await choices(services(), checkpoint), await providers.list_all(services()))


class Form:
    """What is asked, and the fault of what was answered."""

    def __init__(
        self, checkpoint: str, names: list[str], choices: EvaluationChoices, known_providers: Sequence[Provider]
    ) -> None:
        self._values: dict[str, Any] = {"model": checkpoint}
        self._numbers: dict[str, float | None] = {"eval.samples": 4, "eval.temperature": 1, _TOKENS: 256, "limit": None}
        self._rows_of_file = choices.rows_of_file
        with tag("form", "s-column s-form") as form:
            with _part("Model"):
                model = text_field("Model, checkpoint or deployment", checkpoint, self._keep("model"))
                model.set_autocomplete(names)
                with tag("details"):
                    tag_text("summary", "Use a model behind an OpenAI-compatible endpoint")
                    self._elsewhere = ProviderChoice(model, known_providers)
            with _part("Rows"):
                hint = "Held-out rows, which the model was not trained on."
                self._data = choice_field("Dataset", choices.rows, None, self._keep("dataset_id"), hint=hint)
                self._data.props("use-input input-debounce=0 fill-input hide-selected")
                with tag("div", "s-fields"):
                    numbers = {name: self._number(name, label, hint) for name, (label, hint) in _NUMBERS.items()}
            with _part("Rewards"), tag("div", "s-fields s-wide-fields"):
                hint = "The job's rewards, max response length and template options."
                job = choice_field("As in job", choices.jobs, None, self._follow, hint=hint)
                job.props("clearable")
                own = choice_field("Rewards", choices.rewards, [], self._keep("rewards"), hint=_INSTEAD, several=True)
            self._others = Complaint()
            with tag("div", "s-row"):
                self._control = button("Start", lambda: None, "primary").props("type=submit")
        self._tokens = numbers[_TOKENS]
        chosen = {"model": model, "dataset_id": self._data, "job_id": job, "rewards": own}
        self._fields: dict[str, Complaining] = {**chosen, **numbers}
        form.on("submit.prevent", self._start, args=[])
        job.value = choices.job

    async def _follow(self, job_id: str | None) -> None:
        """Take over what a job says: its held-out rows, and how long answers may be."""
        self._values["job_id"] = job_id
        if job_id is None:
            return
        job = await jobs.get(services(), job_id)
        if not self._data.value:
            self._data.value = self._rows_of_file.get(job.validation_file or "")
        self._tokens.value = job.config.sampling.max_completion_tokens

    def _keep(self, name: str) -> Callable[[Any], None]:
        def kept(value: Any) -> None:
            self._values[name] = value

        return kept

    def _number(self, name: str, label: str, hint: str) -> ui.number:
        def kept(value: float | None) -> None:
            self._numbers[name] = value

        return number_field(label, self._numbers[name], kept, hint=hint)

    async def _start(self) -> None:
        self._control.disable()
        try:
            made = await evaluations.create(services(), self._request())
        except (StropError, ValueError) as error:
            self._show(faults(error))
            self._control.enable()
        else:
            ui.navigate.to(f"/evaluations/{made.id}")

    def _show(self, found: dict[str, str]) -> None:
        """Show each error at the field that its name begins with, or below all fields."""
        left = {"dataset_id" if name == "file_id" else name: message for name, message in found.items()}
        for name, field in self._fields.items():
            mine = [fault for fault in left if fault == name or fault.startswith((f"{name}.", f"{name}["))]
            complain(field, "; ".join(left.pop(fault) for fault in mine))
        self._others.error = "\n".join(f"{name}: {message}" if name else message for name, message in left.items())

    def _request(self) -> EvaluationRequest:
        """ValueError for what is no request."""
        name, elsewhere = (self._values["model"] or "").strip(), self._elsewhere.value
        if not name:
            raise InvalidRequest("choose a model", param="model")
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
                **_named(self._values["dataset_id"]),
                "job_id": self._values.get("job_id") or None,
                "rewards": [{"name": reward, "reward": reward} for reward in self._values.get("rewards") or ()] or None,
                "limit": self._numbers["limit"],
                **tables,
            }
        )


def _named(rows: str) -> dict[str, str]:
    return {"dataset_id" if rows.startswith("ds_") else "file_id": rows}


def _whole(value: float) -> float:
    return int(value) if float(value).is_integer() else value


@contextmanager
def _part(title: str) -> Iterator[None]:
    with tag("section", "s-card"):
        tag_text("h2", title)
        yield
