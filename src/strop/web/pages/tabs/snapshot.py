"""The newest evaluation figures of a run, of all steps or of a range."""

from __future__ import annotations

from typing import Any

from nicegui import ui

from strop.services import runs
from strop.web.context import services
from strop.web.pages.tabs.subject import Subject
from strop.web.theme import facts, tag, tag_text

REFRESH_S = 4.0
_NOTHING = 1e-12
"""What rounding leaves of a sum that is 0."""
ROWS = (
    ("Advantages", "advantages"),
    ("Eval response lengths", "validation/response_length"),
    ("Eval reward", "validation/reward"),
    ("Eval solve rate", "validation/solve_rate"),
)


class Snapshot:
    """A card; the step that each figure is of stands beside it."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._shown: object = None
        with tag("section", "s-card", 'aria-label="Evaluation snapshot"'):
            with tag("div", "s-row"):
                tag_text("h2", "Evaluation snapshot", "s-grow")
                self._first = self._number("First step")
                self._last = self._number("Last step")
            self._box = tag("div")

    async def build(self) -> None:
        """Draw the figures, and again while new steps may come."""
        await self.refresh()
        if self._subject.active:
            ui.timer(REFRESH_S, self.refresh)

    def _number(self, label: str) -> ui.number:
        field = ui.number(label, min=0, precision=0).props("outlined dense clearable").classes("s-short")
        field.on_value_change(lambda: self.refresh())
        return field

    async def refresh(self) -> None:
        """Read the newest figures within the range."""
        first, last = _step(self._first.value), _step(self._last.value)
        found = await runs.curves(services(), self._subject.run_id, [name for _, name in ROWS], first, last)
        rows = tuple((label, _newest(found[name])) for label, name in ROWS)
        if rows == self._shown or self._box.is_deleted:
            return
        self._shown = rows
        self._box.clear()
        with self._box:
            facts(rows)


def _step(value: Any) -> int | None:
    return None if value is None else int(value)


def _newest(curve: Any) -> str:
    if not curve["steps"]:
        return "not measured"
    value = curve["values"][-1]
    shown = 0.0 if abs(value) < _NOTHING else value
    return f"{shown:.4g} at step {curve['steps'][-1]}"
