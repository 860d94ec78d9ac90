"""`/evaluate` (not below `/evaluations/`, where ids stand): which model, on which rows, scored how."""

from __future__ import annotations

from typing import Any

from nicegui import run, ui

from strop.api.evaluation_request import EvaluationRequest, RemoteModel, new_evaluation
from strop.api.openai.requests import RewardOption
from strop.errors import StropError
from strop.store import queries
from strop.store.datasets import DatasetStore
from strop.store.rewards import RewardStore
from strop.web.context import Address, services
from strop.web.models import chat_models
from strop.web.providers import ProviderChoice
from strop.web.theme import button, page, tag, tag_text, text


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
        datasets = {
            found.id: f"{found.name} ({found.rows or '?'} rows)" for found in DatasetStore(given.database).list()
        }
        rewards = [found.name for found in RewardStore(given.database, given.folder).list()]
        jobs = {job.id: job.name for job in given.jobs.list(limit=100)}
        with tag("form", "s-column s-form"):
            with tag("section", "s-card"):
                tag_text("h2", "Model")
                self._model = _field(ui.input("Model, checkpoint or deployment", value=checkpoint, autocomplete=names))
                with tag("details"):
                    tag_text("summary", "A model elsewhere, behind an OpenAI-compatible endpoint")
                    self._elsewhere = ProviderChoice(self._model)
            with tag("section", "s-card"):
                tag_text("h2", "Rows")
                self._data = _field(ui.select(datasets, label="Dataset", with_input=True))
                with tag("div", "s-row"):
                    self._limit = _field(ui.number("Only the first (optional)", min=1, precision=0))
                    self._samples = _field(ui.number("Answers to each row", value=4, min=1, precision=0))
                    self._temperature = _field(ui.number("Temperature", value=1.0, min=0, max=2, step=0.1))
                    self._tokens = _field(ui.number("Max response length", value=256, min=1, precision=0))
            with tag("section", "s-card"):
                tag_text("h2", "Rewards")
                text("As in a job, or rewards of your own.", "s-muted")
                self._job = _field(ui.select(jobs, label="As in job", with_input=True, clearable=True))
                self._rewards = _field(ui.select(rewards, label="Rewards", multiple=True))
            self._fault = tag("div")
            button("Start", self._start, "primary")
        if checkpoint:
            self._job.value = _job_of(checkpoint)

    async def _start(self) -> None:
        self._fault.clear()
        try:
            request = EvaluationRequest.model_validate(self._request())
            made = await run.io_bound(_create, request)
        except (StropError, ValueError) as error:
            with self._fault:
                message = error.message if isinstance(error, StropError) else str(error)
                tag_text("p", message, "s-error", 'role="alert"')
        else:
            ui.navigate.to(f"/evaluations/{made}")

    def _request(self) -> dict[str, Any]:
        model: Any = (self._model.value or "").strip()
        elsewhere = self._elsewhere.value
        if elsewhere is not None:
            model = RemoteModel.model_validate({"model": model, **elsewhere})
        samples = int(self._samples.value or 1)
        return {
            "model": model,
            "dataset_id": self._data.value,
            "job_id": self._job.value or None,
            "rewards": [RewardOption(name=name, reward=name) for name in self._rewards.value or ()] or None,
            "limit": int(self._limit.value) if self._limit.value else None,
            "eval": {"samples": samples, "temperature": float(self._temperature.value or 0)},
            "sampling": {"max_completion_tokens": int(self._tokens.value or 256)},
        }


def _field(element: Any) -> Any:
    return element.props("outlined dense").classes("s-grow")


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
