"""`/datasets`: what there is to train and evaluate on."""

from __future__ import annotations

from typing import Any

from nicegui import run, ui

from strop.api.strop.datasets import DatasetObject, NewDataset, SampleObject, create_dataset, list_datasets
from strop.errors import StropError
from strop.web.catalogues import named_freely, sample_dataset, samples
from strop.web.components import Uploader
from strop.web.context import Address, services
from strop.web.numbers import size
from strop.web.theme import button, failed, page, since, tag, tag_text, text

PAGE = 50


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
