"""`/datasets`: what there is to train and evaluate on; and `/datasets/{id}`: one of them."""

from __future__ import annotations

from typing import Any

from nicegui import run, ui

from strop.api.strop.datasets import (
    DatasetChange,
    DatasetObject,
    NewDataset,
    SampleObject,
    SplitRequest,
    change_dataset,
    create_dataset,
    delete_dataset,
    get_dataset,
    list_datasets,
    split_dataset,
)
from strop.errors import StropError
from strop.web.catalogues import named_freely, sample_dataset, samples
from strop.web.components import Uploader
from strop.web.context import Address, services
from strop.web.forms import ask, choice_field, complain, number_field, share_of, text_field
from strop.web.models import model_names
from strop.web.numbers import size
from strop.web.prompts import PromptCheck
from strop.web.rows import RowPages
from strop.web.theme import button, confirm, failed, page, since, tag, tag_text, text

PAGE = 50
USUAL_LIMIT = 512


@ui.page("/datasets")
async def datasets_page() -> None:
    """All data sets, and ways to get another one."""
    address = Address.of_page()
    with page("Datasets", "Datasets"):
        tag_text("h1", "Datasets")
        text(
            "Prompts to train and evaluate on: JSONL, one row a line, with messages and, where a reward needs it, "
            "a reference answer.",
            "s-muted",
        )
        Uploader(on_uploaded=_uploaded)
        listing = Listing(address)
        with tag("section", "s-column", 'aria-labelledby="samples"'):
            tag_text("h2", "Sample data sets", props='id="samples"')
            text("Made by strop, each with a reward that fits.", "s-muted")
            box = tag("div", "s-grid")
        await listing.load()
        for sample in await run.io_bound(samples) or ():
            with box:
                _sample(sample)


async def _uploaded(file: dict[str, Any]) -> None:
    """Name an uploaded file after itself, and show it."""

    def name(free: str) -> DatasetObject:
        return create_dataset(NewDataset(file_id=file["id"], name=free), services())

    try:
        made = await run.io_bound(named_freely, str(file["filename"]).removesuffix(".jsonl"), name)
    except StropError as error:
        failed(error.message)
    else:
        assert made is not None
        ui.navigate.to(f"/datasets/{made.id}")


def _sample(sample: SampleObject) -> None:
    async def add() -> None:
        control.disable()
        try:
            made = await run.io_bound(sample_dataset, services(), sample.id, "train")
            await run.io_bound(sample_dataset, services(), sample.id, "validation")
        except StropError as error:
            control.enable()
            failed(error.message)
        else:
            assert made is not None
            ui.navigate.to(f"/datasets/{made.id}")

    with tag("section", "s-card"):
        tag_text("h3", sample.title)
        tag_text("p", sample.description, "s-grow")
        with tag("div", "s-row"):
            rows = f"{sample.rows['train']:,} rows and {sample.rows['validation']:,} held out"
            text(rows, "s-small s-muted s-grow")
            control = button("Add", add)
            control.props["aria-label"] = f"Add {sample.title}"


class Listing:
    """The table of data sets."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._search = address.values.get("search", "")
        self._found: list[DatasetObject] = []
        field = ui.input(placeholder="Search data sets", value=self._search)
        field.props('outlined dense clearable type=search data-search aria-label="Search data sets" debounce=200')
        field.on_value_change(lambda event: self._find(event.value))
        self._box = tag("div", "s-column", 'aria-live="polite"')

    async def load(self, after: str | None = None) -> None:
        """Read data sets, and show them."""
        found = await run.io_bound(list_datasets, services(), after, PAGE, self._search)
        if found is None or self._box.is_deleted:
            return
        self._found = [*(self._found if after else []), *found.data]
        self._box.clear()
        with self._box:
            if not self._found:
                nothing = "No data set matches." if self._search else "No data sets yet: upload one, or add a sample."
                tag_text("p", nothing, "s-empty")
                return
            self._table()
            if found.has_more:
                button("Show more", lambda: self.load(found.last_id))

    def _table(self) -> None:
        with tag("div", "s-table-wrap"), tag("table", "s-table"):
            with tag("thead"), tag("tr"):
                for name in ("Name", "Description", "Rows", "Size", "Created", ""):
                    tag_text("th", name, "s-number" if name in ("Rows", "Size") else "")
            with tag("tbody", props="data-list"):
                for dataset in self._found:
                    with tag("tr"):
                        with tag("td"):
                            ui.link(dataset.name, f"/datasets/{dataset.id}").classes("s-clip").props("data-item")
                        with tag("td"):
                            text(dataset.description, "s-clip s-muted")
                        tag_text("td", f"{dataset.rows or 0:,}", "s-number mono")
                        tag_text("td", size(dataset.bytes), "s-number mono")
                        with tag("td"):
                            since(dataset.created_at)
                        with tag("td"):
                            train = button(
                                "Train on it", lambda id=dataset.id: ui.navigate.to(f"/jobs/new?dataset={id}")
                            )
                            train.props["aria-label"] = f"Train on {dataset.name}"

    async def _find(self, wanted: str | None) -> None:
        self._search = wanted or ""
        self._address.set({"search": self._search})
        await self.load()


@ui.page("/datasets/{dataset_id}")
async def dataset_page(dataset_id: str) -> None:
    """One data set: its rows, what is wrong with them, and what can be done with it."""
    try:
        dataset = await run.io_bound(get_dataset, dataset_id, services())
    except StropError as error:
        with page("Not found", "Datasets"):
            tag_text("h1", "Not found")
            tag_text("p", f"{error.message}. It may have been deleted.", "s-empty")
        return
    assert dataset is not None
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
                names = model_names()
                model = self._address.values.get("model") or (names[0] if names else None)
                options = dict.fromkeys([*names, *([model] if model else [])])
                self._model = choice_field(
                    "Model",
                    {name: name for name in options},
                    model,
                    lambda value: self._check(),
                    hint="Its tokenizer and chat template count the tokens.",
                )
                self._limit = number_field(
                    "Maximum prompt length",
                    self._known_limit(),
                    lambda value: self._check(),
                    hint="Tokens; longer prompts are left out of training.",
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
        usual = next(iter(model_names()), None)
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
            changed = await run.io_bound(change_dataset, self._dataset.id, change, services())
            assert changed is not None
            self._dataset = changed
            self._draw_head()

        await ask("Rename", fields, "Save", save)

    async def _split(self) -> None:
        values: dict[str, Any] = {"validation": 10, "seed": 17}

        def fields() -> dict[str, Any]:
            text(
                "Makes two data sets out of this one, which stays. No prompt stands in both, and the same seed "
                "gives the same parts.",
                "s-muted",
            )
            share = number_field(
                "Share to hold out, in percent", 10, lambda value: values.update(validation=value), step=1
            )
            seed = number_field("Seed", 17, lambda value: values.update(seed=value), step=1)
            return {"validation": share, "seed": seed}

        async def part() -> None:
            wanted = SplitRequest(validation=share_of(values["validation"]), seed=values["seed"])
            made = await run.io_bound(split_dataset, self._dataset.id, wanted, services())
            assert made is not None
            ui.navigate.to(f"/datasets/{made.train.id}")

        await ask("Split", fields, "Split", part)

    async def _delete(self) -> None:
        question = f"Delete {self._dataset.name}?"
        consequence = "Its file goes too, unless something else needs it. Runs keep what they were trained on."
        if not await confirm(question, consequence, "Delete"):
            return
        try:
            await run.io_bound(delete_dataset, self._dataset.id, services(), True)
        except StropError as error:
            failed(error.message)
        else:
            ui.navigate.to("/datasets")
