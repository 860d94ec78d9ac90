"""Step 2: training rows and held-out rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal

from nicegui import ui

from strop.errors import StropError
from strop.services import datasets
from strop.services.datasets import DatasetObject, SampleObject, SplitRequest
from strop.services.drafts.draft import JobDraft, RewardPart
from strop.services.drafts.parameters import fault_of, value_of
from strop.web.components import Uploader
from strop.web.context import services
from strop.web.forms import choice_field, complain, number_field, radio, share_of
from strop.web.prompts import PromptCheck
from strop.web.rows import RowPages
from strop.web.theme import button, failed, tag, tag_text, text
from strop.web.wizard.frame import Wizard

_LIMIT = "sampling.max_prompt_tokens"
_ROWS = 5
_SHARE = 10

Held = Literal["none", "part", "other"]
_HELD: Mapping[Held, tuple[str, str]] = {
    "none": ("None", "No validation; only the reward on training rows is recorded."),
    "part": ("Part of these rows", "Splits the data set in two. No prompt appears in both."),
    "other": ("Another data set", ""),
}


async def build(wizard: Wizard) -> None:
    """Draw the step."""
    await DatasetStep(wizard).build()


class DatasetStep:
    """The choice of rows, what is in them, and what is held out."""

    def __init__(self, wizard: Wizard) -> None:
        self._wizard = wizard
        self._known: list[DatasetObject] = []
        self._held: Held = "other" if wizard.draft.validation else "none"
        self._share: float | None = _SHARE

    async def build(self) -> None:
        """Draw it."""
        self._known = await datasets.list_all(services())
        made = self._samples = await datasets.samples()
        with tag("section", "s-card", 'aria-labelledby="train"'):
            tag_text("h2", "Training rows", props='id="train"')
            self._select = tag("div", "s-fields s-wide-fields")
            Uploader(on_uploaded=self._uploaded)
            with tag("details", "s-samples") as closed:
                tag_text("summary", "Or use a sample data set with a matching reward")
                with tag("div", "s-grid"):
                    for sample in made:
                        self._sample(sample)
            if not self._known:
                closed.props("open")
        self._details = tag("div", "s-column")
        self._draw_select()
        await self._draw_details()

    def _draw_select(self) -> None:
        self._select.clear()
        chosen = self._wizard.draft.train
        names = {dataset.id: f"{dataset.name} ({dataset.rows or 0:,} rows)" for dataset in self._known}
        if chosen and chosen not in names:
            names[chosen] = f"{chosen} (deleted)"
        with self._select:
            field = choice_field("Data set", names, chosen or None, self._choose)
            field.props("use-input input-debounce=0 fill-input hide-selected")
            self._wizard.at(field, "training_file")

    async def _uploaded(self, file: dict[str, Any]) -> None:
        try:
            made = await datasets.of_file(services(), file["id"])
        except StropError as error:
            failed(error.message)
            return
        await self._take(made)

    def _sample(self, sample: SampleObject) -> None:
        async def take() -> None:
            control.disable()
            try:
                train = await datasets.of_sample(services(), sample.id, "train")
                held_out = await datasets.of_sample(services(), sample.id, "validation")
            except StropError as error:
                failed(error.message)
                return
            finally:
                control.enable()
            self._wizard.change(partial(_with_reward, sample=sample, known=self._samples), "strop.rewards")
            await self._take(train, held_out)

        with tag("section", "s-card"):
            with tag("div", "s-row"):
                tag_text("h3", sample.title, "s-grow")
                control = button("Use", take)
                control.props["aria-label"] = f"Use {sample.title}"
            tag_text("p", sample.description, "s-small s-muted")

    async def _take(self, dataset: DatasetObject, validation: DatasetObject | None = None) -> None:
        """Train on a data set that may be new."""
        self._known = await datasets.list_all(services())
        held_out = validation.id if validation else ""
        self._wizard.change(
            lambda draft: draft.model_copy(update={"train": dataset.id, "validation": held_out}),
            "training_file",
            "validation_file",
        )
        self._held = "other" if validation else "none"
        self._draw_select()
        await self._draw_details()

    async def _choose(self, dataset: str | None) -> None:
        if dataset and dataset != self._wizard.draft.train:
            self._wizard.change(lambda draft: draft.model_copy(update={"train": dataset}), "training_file")
            await self._draw_details()

    async def _draw_details(self) -> None:
        """What is in the chosen rows, and what is held out."""
        self._details.clear()
        train = self._wizard.draft.train
        if train not in {dataset.id for dataset in self._known}:
            return
        with self._details:
            with tag("section", "s-card", 'aria-labelledby="check"'):
                tag_text("h2", "Contents", props='id="check"')
                with tag("div", "s-fields"):
                    limit = number_field(
                        "Max prompt length",
                        value_of(self._wizard.draft.values, _LIMIT),
                        self._set_limit,
                        hint="In tokens. Longer prompts are dropped from training.",
                        step=1,
                    )
                    limit.props("debounce=300")
                    self._limit = self._wizard.at(limit, f"strop.{_LIMIT}")
                self._prompts = PromptCheck()
                rows = RowPages(train, limit=_ROWS)
            with tag("section", "s-card", 'aria-labelledby="held"'):
                tag_text("h2", "Held-out rows", props='id="held"')
                text(
                    "Never trained on. The validation reward on these rows shows whether the model generalises.",
                    "s-muted",
                )
                self._validation = tag("div", "s-column")
        self._draw_validation()
        await rows.load()
        with self._details:
            ui.timer(0, self._check, once=True)

    async def _check(self) -> None:
        draft = self._wizard.draft
        limit = value_of(draft.values, _LIMIT)
        if not fault_of(_LIMIT, limit):
            template = value_of(draft.values, "sampling.template")
            await self._prompts.look(draft.train, draft.model or None, int(limit), template)

    async def _set_limit(self, limit: float | None) -> None:
        value = int(limit) if limit is not None and limit == int(limit) else limit
        self._wizard.set_value(_LIMIT, value)
        complain(self._limit, fault_of(_LIMIT, value) if value is not None else "")
        await self._check()

    def _draw_validation(self) -> None:
        self._validation.clear()
        with self._validation:
            for held, (label, hint) in _HELD.items():
                radio("held", label, held == self._held, partial(self._hold, held), hint=hint)
            if self._held == "part":
                with tag("div", "s-row s-bottom-aligned"):
                    field = number_field("Held-out share (%)", self._share, self._set_share, step=1)
                    button("Hold out", partial(self._split, field), "primary")
            elif self._held == "other":
                names = {dataset.id: dataset.name for dataset in self._known if dataset.id != self._wizard.draft.train}
                chosen = self._wizard.draft.validation
                if chosen and chosen not in names:
                    names[chosen] = chosen
                with tag("div", "s-fields s-wide-fields"):
                    select = choice_field("Held-out data set", names, chosen or None, self._validate_on)
                    self._wizard.at(select, "validation_file")

    def _hold(self, held: Held) -> None:
        self._held = held
        if held != "other":
            self._validate_on("")
        self._draw_validation()

    def _set_share(self, share: float | None) -> None:
        self._share = share

    def _validate_on(self, dataset: str | None) -> None:
        self._wizard.change(lambda draft: draft.model_copy(update={"validation": dataset or ""}), "validation_file")

    async def _split(self, field: ui.number) -> None:
        try:
            wanted = SplitRequest(validation=share_of(self._share), seed=self._wizard.draft.seed)
            parts = await datasets.split(services(), self._wizard.draft.train, wanted)
        except (StropError, ValueError) as error:
            complain(field, error.message if isinstance(error, StropError) else str(error))
            return
        await self._take(parts.train, parts.validation)


def _with_reward(draft: JobDraft, sample: SampleObject, known: Sequence[SampleObject]) -> JobDraft:
    """The draft with the reward of a sample, unless it has rewards of its own."""
    sources = {other.reward for other in known}
    if any(part.source not in sources for part in draft.rewards):
        return draft
    part = RewardPart(name=sample.id.replace("-", "_"), source=sample.reward)
    return draft.model_copy(update={"rewards": (part,)})
