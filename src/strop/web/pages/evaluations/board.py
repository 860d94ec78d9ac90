"""`/evaluations`: the list, from which two can be chosen to compare."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from nicegui import ui

from strop.errors import StropError
from strop.services import evaluations
from strop.services.evaluation_objects import EvaluationObject
from strop.web.context import services
from strop.web.pages.evaluations.figures import interval
from strop.web.theme import badge, button, confirm, failed, page, since, tag, tag_text, text

REFRESH_S = 2.0
SHOWN = 100


@ui.page("/evaluations")
async def evaluations_page() -> None:
    """All evaluations."""
    with page("Evaluations", "Evaluations"):
        with tag("div", "s-row"):
            tag_text("h1", "Evaluations", "s-grow")
            board = Board()
            board.compare = button("Compare two", board.compare_chosen)
            button("New evaluation", lambda: ui.navigate.to("/evaluate"), "primary")
        board.box = tag("div")
        await board.refresh()
        ui.timer(REFRESH_S, board.refresh)


class Board:
    """The table; drawn again when something changed."""

    box: ui.element
    compare: ui.button

    def __init__(self) -> None:
        self._chosen: list[str] = []
        self._shown: object = None

    async def refresh(self) -> None:
        """Read the evaluations."""
        found = (await evaluations.list_page(services(), limit=SHOWN)).data
        self.compare.set_enabled(len(self._chosen) == 2)
        if found == self._shown:
            return
        self._shown = found
        self.box.clear()
        with self.box:
            if not found:
                tag_text(
                    "p",
                    "No evaluations yet. Evaluate a base model and a checkpoint on the same rows, then compare them.",
                    "s-empty",
                )
                return
            with tag("div", "s-table-wrap"), tag("table", "s-table"):
                with tag("thead"), tag("tr"):
                    for name in ("", "Name", "Status", "Rows", "Reward", "Pass rate", "Created", ""):
                        tag_text("th", name)
                with tag("tbody", props="data-list"):
                    for entry in found:
                        self._row(entry)

    def _row(self, entry: EvaluationObject) -> None:
        with tag("tr"):
            with tag("td"):
                box = ui.checkbox(value=entry.id in self._chosen, on_change=self._choose(entry.id))
                box.props(f'dense aria-label="Compare {entry.name}"')
            with tag("td"):
                ui.link(entry.name, f"/evaluations/{entry.id}").props("data-item").classes("s-clip")
                if entry.model not in entry.name:
                    text(entry.model, "s-clip s-small s-muted")
            with tag("td"):
                badge(entry.status)
                if entry.reason:
                    text(entry.reason, "s-small s-muted")
            tag_text("td", f"{entry.rows_done} of {entry.rows_total or '?'}", "mono")
            report = entry.report
            tag_text("td", interval(report.reward) if report else "–", "mono")
            tag_text("td", interval(report.pass_at.get("1")) if report else "–", "mono")
            with tag("td"):
                since(entry.created_at)
            with tag("td"), tag("div", "s-row s-actions"):
                self._actions(entry)

    def _choose(self, evaluation: str) -> Callable[[Any], None]:
        def chosen(event: Any) -> None:
            self._chosen = [other for other in self._chosen if other != evaluation]
            if event.value:
                self._chosen = [*self._chosen, evaluation][-2:]
                self._shown = None if len(self._chosen) > 2 else self._shown
            self.compare.set_enabled(len(self._chosen) == 2)

        return chosen

    def compare_chosen(self) -> None:
        """Show the two side by side; the one chosen first is the base."""
        base, other = self._chosen
        ui.navigate.to(f"/evaluations/compare?base={base}&other={other}")

    def _actions(self, entry: EvaluationObject) -> None:
        if entry.status in ("queued", "running"):
            self._act("Cancel", lambda: evaluations.cancel(services(), entry.id))
        else:
            if entry.status != "succeeded":
                self._act("Resume", lambda: evaluations.resume(services(), entry.id))
            self._act("Delete", lambda: evaluations.delete(services(), entry.id), f"Delete {entry.name}?")

    def _act(self, label: str, act: Callable[[], Awaitable[object]], question: str = "") -> None:
        async def pressed() -> None:
            if question and not await confirm(question, "Its completions and results are deleted too.", label):
                return
            try:
                await act()
            except StropError as error:
                failed(error.message)
            await self.refresh()

        button(label, pressed)
