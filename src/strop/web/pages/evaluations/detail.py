"""`/evaluations/{id}` and `/evaluations/compare`: figures, and row by row what was answered."""

from __future__ import annotations

from typing import Any

from nicegui import ui

from strop.errors import StropError
from strop.services import evaluations
from strop.services.evaluation_objects import ComparisonObject, EvaluationObject
from strop.web.context import Address, services
from strop.web.pages.evaluations.answers import AnswerInspector, Column, draw_row
from strop.web.pages.evaluations.figures import bars, interval
from strop.web.theme import badge, button, facts, failed, missing, page, tag, tag_text, text

REFRESH_S = 2.0
PAGE_ROWS = 20
SORTS = {"line": "file order", "-reward": "best first", "reward": "worst first"}
CHANGES = {"-change": "most improved first", "change": "most worsened first", "line": "file order"}
_SURE = 0.05
_OPEN = ("queued", "running")


@ui.page("/evaluations/compare")
async def compare_page() -> None:
    """Two evaluations on the rows that both answered."""
    address = Address.of_page()
    base, other = address.values.get("base", ""), address.values.get("other", "")
    with page("Compare evaluations", "Evaluations"):
        tag_text("h1", "Compare evaluations")
        sort = address.values.get("sort", "-change")
        try:
            chosen_sort = sort if sort in CHANGES else "-change"
            found = await evaluations.compare_two(services(), base, other, sort=chosen_sort, limit=PAGE_ROWS)
        except StropError as error:
            tag_text("p", error.message, "s-error")
            return
        _comparison(found)
        with tag("div", "s-row"):
            tag_text("h2", "Row by row", "s-grow")
            chosen = ui.select(CHANGES, value=sort, label="Sort").props("outlined dense")
            chosen.on_value_change(lambda event: _again(address, event.value))
        inspector = AnswerInspector(address, {entry.id: entry.model for entry in (found.base, found.other)})
        for pair in found.data:
            sides = ((found.base, pair.base), (found.other, pair.other))
            draw_row([Column(entry.id, entry.model, row) for entry, row in sides], pair.change, inspector)


def _again(address: Address, sort: str) -> None:
    address.set({"sort": sort})
    ui.navigate.reload()


def _comparison(found: ComparisonObject) -> None:
    figures = found.figures
    with tag("section", "s-card"):
        tag_text("h2", _verdict(found))
        facts(
            (
                (found.base.model, interval(figures.before)),
                (found.other.model, interval(figures.after)),
                ("Reward difference", interval(figures.change, signed=True)),
                ("Pass rate difference", interval(figures.pass_change, signed=True)),
                ("Rows", f"{figures.better} better, {figures.worse} worse, {figures.equal} equal of {figures.rows}"),
                ("p-value", f"p = {figures.p_value:.2g} (sign-flip permutation test)"),
            )
        )
        for note in found.notes:
            tag_text("p", note, "s-note")
        models = [(entry.model, entry.report.components if entry.report else {}) for entry in (found.base, found.other)]
        names = list(dict.fromkeys(name for _, components in models for name in components))
        bars(models, names)


def _verdict(found: ComparisonObject) -> str:
    """The state of the race, in the words that people use for it."""
    change, sure = found.figures.change, found.figures.p_value < _SURE
    if not sure:
        return f"{found.other.model} and {found.base.model} do not differ significantly"
    leads, trails = (found.other, found.base) if change.mean > 0 else (found.base, found.other)
    return f"{leads.model} outperforms {trails.model}"


@ui.page("/evaluations/{evaluation_id}")
async def evaluation_page(evaluation_id: str) -> None:
    """One evaluation."""
    address = Address.of_page()
    try:
        entry: EvaluationObject = await evaluations.get(services(), evaluation_id)
    except StropError as error:
        missing("Evaluations", error.message)
        return
    with page(entry.name, "Evaluations"):
        await _Live(entry, address).build()


class _Live:
    """Figures and rows of an evaluation, drawn again as they come."""

    def __init__(self, entry: EvaluationObject, address: Address) -> None:
        self._shown = entry
        self._head = tag("section", "s-column")
        with self._head:
            _head(entry)
        self._rows = Rows(entry, address)

    async def build(self) -> None:
        """Draw the rows, and follow what is not done."""
        await self._rows.draw()
        if self._shown.status in _OPEN:
            self._timer = ui.timer(REFRESH_S, self._refresh)

    async def _refresh(self) -> None:
        try:
            now = await evaluations.get(services(), self._shown.id)
        except StropError as error:  # it was deleted meanwhile
            self._timer.cancel()
            failed(error.message)
            return
        if now == self._shown:
            return
        if now.rows_done != self._shown.rows_done:
            await self._rows.grown()
        self._shown = now
        self._head.clear()
        with self._head:
            _head(now)
        if now.status not in _OPEN:
            self._timer.cancel()


def _head(entry: EvaluationObject) -> None:
    with tag("div", "s-row"):
        tag_text("h1", entry.name)
        badge(entry.status)
        text(f"{entry.rows_done} of {entry.rows_total or '?'} rows", "s-muted")
    if entry.reason:
        tag_text("p", entry.reason, "s-error" if entry.status == "failed" else "s-note")
    report = entry.report
    if report is None:
        tag_text("p", "Results appear after the first rows are scored.", "s-empty")
        return
    with tag("section", "s-card"):
        passes = tuple((f"pass@{k}", interval(estimate)) for k, estimate in report.pass_at.items())
        facts((("Reward", interval(report.reward)), *passes, ("Rows scored", f"{report.scored} of {report.rows}")))
        bars([(entry.model, report.components)], list(report.components))


class Rows:
    """Answers by row, page by page."""

    def __init__(self, entry: EvaluationObject, address: Address) -> None:
        self._evaluation = entry.id
        self._address = address
        with tag("div", "s-row"):
            tag_text("h2", "Row by row", "s-grow")
            self._search = ui.input("Search prompts", value=address.values.get("search", "")).props("outlined dense")
            self._search.props("debounce=250 data-search").on_value_change(self._changed)
            self._sort = ui.select(SORTS, value=address.values.get("sort", "line"), label="Sort").props(
                "outlined dense"
            )
            self._sort.on_value_change(self._changed)
        self._inspector = AnswerInspector(address, {entry.id: entry.model})
        self._box = tag("div", "s-column")
        self._more = button("Show more", self._further)
        self._last: str | None = None
        self._turned = False

    async def draw(self) -> None:
        """Show the first page."""
        await self._draw(None)

    async def grown(self) -> None:
        """Show that there are more rows. Keep the rows on display if the reader has turned the page."""
        if not self._turned:
            await self._draw(None)

    async def _changed(self, event: Any) -> None:
        self._address.set(
            {"search": self._search.value, "sort": "" if self._sort.value == "line" else self._sort.value}
        )
        self._turned = False
        await self._draw(None)

    async def _further(self) -> None:
        self._turned = True
        await self._draw(self._last)

    async def _draw(self, after: str | None) -> None:
        asked = self._asked = object()
        found = await evaluations.list_rows(
            services(),
            self._evaluation,
            search=self._search.value or None,
            sort=self._sort.value or "line",
            limit=PAGE_ROWS,
            after=after,
        )
        if asked is not self._asked or self._box.is_deleted:
            return  # another request has replaced this one
        if after is None:
            self._box.clear()
        self._last = found.last_id
        self._more.set_visibility(found.has_more)
        with self._box:
            for row in found.data:
                draw_row([Column(self._evaluation, "", row)], None, self._inspector)
            if not found.data and after is None:
                tag_text("p", "No rows yet." if not self._search.value else "No rows match your search.", "s-empty")
