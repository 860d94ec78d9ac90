"""Rows of a data set, a page at a time."""

from __future__ import annotations

import json
from collections.abc import Callable

from nicegui import ui

from strop.errors import StropError
from strop.services import datasets
from strop.services.datasets import DatasetRow, DatasetRows
from strop.types import Json
from strop.web.context import services
from strop.web.theme import button, tag, tag_text, text

LIMIT = 10


class RowPages:
    """A table of rows with a search, and pages to turn."""

    def __init__(
        self,
        dataset_id: str,
        *,
        limit: int = LIMIT,
        search: str = "",
        on_search: Callable[[str], object] = lambda text: None,
    ) -> None:
        self._dataset_id, self._limit, self._search = dataset_id, limit, search
        self._on_search = on_search
        self._before: list[str | None] = []
        """Cursors of the pages before this one."""
        self._cursor: str | None = None
        with tag("div", "s-row"):
            field = ui.input(placeholder="Search rows", value=search, on_change=lambda event: self._find(event.value))
            field.props('outlined dense clearable type=search data-search aria-label="Search rows" debounce=250')
            field.classes("s-grow")
        self._box = tag("div", "s-column", 'aria-live="polite"')

    async def load(self) -> None:
        """Read the page, and show it."""
        asked = (self._cursor, self._search)
        found: DatasetRows | StropError
        try:
            found = await datasets.list_rows(services(), self._dataset_id, self._cursor, self._limit, self._search)
        except StropError as error:
            found = error
        if asked != (self._cursor, self._search) or self._box.is_deleted:
            return
        self._box.clear()
        with self._box:
            if isinstance(found, StropError):
                tag_text("p", found.message, "s-error", 'role="alert"')
            else:
                self._draw(found)

    def _draw(self, found: DatasetRows) -> None:
        if not found.data:
            tag_text("p", "No rows match your search." if self._search else "No rows yet.", "s-empty")
        else:
            with tag("div", "s-table-wrap"), tag("table", "s-table"):
                with tag("thead"), tag("tr"):
                    for name in ("Line", "Prompt", "Reference"):
                        tag_text("th", name, "s-number" if name == "Line" else "")
                with tag("tbody", props="data-list"):
                    for row in found.data:
                        self._row(row)
        if self._before or found.has_more:
            with tag("div", "s-row"):
                self._turn("Previous", bool(self._before), self._back)
                self._turn("Next", found.has_more, lambda: self._on(found.next))

    def _row(self, row: DatasetRow) -> None:
        with tag("tr"):
            tag_text("td", str(row.line), "s-number mono s-top-aligned")
            with tag("td", "s-top-aligned"), tag("details", "s-row-whole"):
                with tag("summary", props="data-item"):
                    text(preview(row.messages), "s-clamp")
                for message in row.messages:
                    with tag("div", "s-turn"):
                        text(str(message["role"]), "s-small s-muted")
                        tag_text("pre", shown(message.get("content") or message.get("tool_calls")))
                tag_text("p", "Row as JSON", "s-small s-muted")
                tag_text("pre", json.dumps(row.fields, ensure_ascii=False, indent=2), "s-note")
            with tag("td", "s-top-aligned"):
                text("–" if row.reference is None else shown(row.reference), "s-clip mono")

    def _turn(self, label: str, enabled: bool, act: Callable[[], object]) -> None:
        control = button(label, act)
        if not enabled:
            control.disable()

    async def _find(self, wanted: str | None) -> None:
        self._search, self._cursor, self._before = wanted or "", None, []
        self._on_search(self._search)
        await self.load()

    async def _on(self, cursor: str | None) -> None:
        self._before.append(self._cursor)
        self._cursor = cursor
        await self.load()

    async def _back(self) -> None:
        self._cursor = self._before.pop()
        await self.load()


def preview(messages: list[dict[str, Json]]) -> str:
    """The last user turn, in one line."""
    asked = [message for message in messages if message["role"] == "user"] or messages
    return " ".join(str(asked[-1].get("content") or "").split()) if asked else ""


def shown(value: Json) -> str:
    """A value as people read it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
