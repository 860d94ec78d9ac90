"""`/datasets/{id}`: a data set, its rows, what is wrong with them, and what can be done with it."""

from __future__ import annotations

from typing import Any

from nicegui import ui

from strop.errors import StropError
from strop.services import datasets, models
from strop.services.datasets import DatasetChange, DatasetObject, SplitRequest
from strop.services.numbers import size
from strop.web.context import Address, services
from strop.web.forms import ask, choice_field, complain, number_field, share_of, text_field
from strop.web.prompts import PromptCheck
from strop.web.rows import RowPages
from strop.web.theme import button, confirm, failed, missing, page, since, tag, tag_text, text

USUAL_LIMIT = 512


@ui.page("/datasets/{dataset_id}")
async def dataset_page(dataset_id: str) -> None:
    """One data set: its rows, what is wrong with them, and what can be done with it."""
    try:
        dataset = await datasets.get(services(), dataset_id)
    except StropError as error:
        missing("Datasets", f"{error.message}. It may have been deleted.")
        return
    with page(dataset.name, "Datasets"):
        await _Dataset(dataset, Address.of_page()).build()


class _Dataset:
    """The page of a data set."""

    def __init__(self, dataset: DatasetObject, address: Address) -> None:
        self._dataset = dataset
        self._address = address

    async def build(self) -> None:
        """Draw it. The check goes on once it is shown."""
        ui.link("Datasets", "/datasets").classes("s-small")
        self._head = tag("header", "s-column")
        self._draw_head()
        with tag("section", "s-card", 'aria-labelledby="check"'):
            tag_text("h2", "Check", props='id="check"')
            with tag("div", "s-fields"):
                names = await models.servable_names(services())
                model = self._address.values.get("model") or (names[0] if names else None)
                options = dict.fromkeys([*names, *([model] if model else [])])
                self._model = choice_field(
                    "Model",
                    {name: name for name in options},
                    model,
                    lambda value: self._check(),
                    hint="Tokens are counted with this model's tokenizer and chat template.",
                )
                self._limit = number_field(
                    "Max prompt length",
                    self._known_limit(),
                    lambda value: self._check(),
                    hint="In tokens. Longer prompts are dropped from training.",
                )
            self._prompts = PromptCheck()
        with tag("section", "s-card", 'aria-labelledby="rows"'):
            tag_text("h2", "Rows", props='id="rows"')
            rows = RowPages(
                self._dataset.id,
                search=self._address.values.get("search", ""),
                on_search=lambda wanted: self._address.set({"search": wanted}),
            )
        await rows.load()
        ui.timer(0, self._check, once=True)

    def _known_limit(self) -> int:
        limit = self._address.values.get("limit", "")
        return int(limit) if limit.isdecimal() and int(limit) > 0 else USUAL_LIMIT

    async def _check(self) -> None:
        limit = self._limit.value
        if limit is not None and (limit < 1 or limit != int(limit)):
            complain(self._limit, "a whole number, at least 1")
            return
        complain(self._limit, "")
        usual = next(iter(await models.servable_names(services())), None)
        view = {"limit": "" if limit in (None, USUAL_LIMIT) else int(limit), "model": self._model.value or ""}
        self._address.set({**view, "model": "" if view["model"] == usual else view["model"]})
        await self._prompts.look(self._dataset.id, self._model.value, None if limit is None else int(limit))

    def _draw_head(self) -> None:
        dataset = self._dataset
        self._head.clear()
        with self._head:
            with tag("div", "s-row"):
                tag_text("h1", dataset.name, "s-grow s-break")
                button("Train on it", lambda: ui.navigate.to(f"/jobs/new?dataset={dataset.id}"), "primary")
                button("Rename", self._rename)
                button("Split", self._split)
                button("Download", lambda: ui.navigate.to(f"/v1/files/{dataset.file_id}/content"))
                button("Delete", self._delete, "danger")
            if dataset.description:
                tag_text("p", dataset.description)
            with tag("div", "s-row s-small s-muted"):
                text(f"{dataset.rows or 0:,} rows, {size(dataset.bytes)}")
                text(dataset.filename, "mono")
                text(dataset.file_id, "mono")
                since(dataset.created_at)

    async def _rename(self) -> None:
        values = {"name": self._dataset.name, "description": self._dataset.description}

        def fields() -> dict[str, Any]:
            name = text_field("Name", values["name"], lambda value: values.update(name=value))
            text_field("Description", values["description"], lambda value: values.update(description=value))
            return {"name": name}

        async def save() -> None:
            change = DatasetChange(**values)
            self._dataset = await datasets.change(services(), self._dataset.id, change)
            self._draw_head()

        await ask("Rename", fields, "Save", save)

    async def _split(self) -> None:
        values: dict[str, Any] = {"validation": 10, "seed": 17}

        def fields() -> dict[str, Any]:
            text(
                "Creates two new data sets and keeps this one. No prompt appears in both. The same seed gives the "
                "same split.",
                "s-muted",
            )
            share = number_field("Held-out share (%)", 10, lambda value: values.update(validation=value), step=1)
            seed = number_field("Seed", 17, lambda value: values.update(seed=value), step=1)
            return {"validation": share, "seed": seed}

        async def part() -> None:
            wanted = SplitRequest(validation=share_of(values["validation"]), seed=values["seed"])
            made = await datasets.split(services(), self._dataset.id, wanted)
            ui.navigate.to(f"/datasets/{made.train.id}")

        await ask("Split", fields, "Split", part)

    async def _delete(self) -> None:
        question = f"Delete {self._dataset.name}?"
        consequence = (
            "Its file is deleted too, unless a job or an evaluation still uses it. Finished runs keep their own copy."
        )
        if not await confirm(question, consequence, "Delete"):
            return
        try:
            await datasets.delete(services(), self._dataset.id, file=True)
        except StropError as error:
            failed(error.message)
        else:
            ui.navigate.to("/datasets")
