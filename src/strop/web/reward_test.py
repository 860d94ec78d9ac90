"""A test of a reward on rows of a data set: their references, or pasted answers."""

from __future__ import annotations

from collections.abc import Callable

from nicegui import ui

from strop.errors import StropError
from strop.services import datasets, reward_tests
from strop.services.datasets import DatasetRow
from strop.services.field_errors import faults
from strop.services.reward_tests import TrialObject, TrialRequest
from strop.types import Json
from strop.web.context import services
from strop.web.forms import area_field, choice_field, number_field, radio
from strop.web.rows import preview
from strop.web.scores import draw_scores
from strop.web.theme import button, tag, tag_text, text

ROWS = 5
MOST_ROWS = 100
SEPARATOR = "---"


class RewardTest:
    """The fields of a test, and what came of it."""

    def __init__(self, option: Callable[[], dict[str, Json]]) -> None:
        """`option` gives the reward as a job names it; ValueError where it cannot be read."""
        self._option = option
        self._pasted = False
        self._answers = ""
        self._rows: float | None = ROWS
        self._line: float | None = 1
        self._dataset: str | None = None
        self._running: object = None
        self._box = tag("div", "s-column")

    async def build(self) -> None:
        """Draw it."""
        found = await datasets.list_all(services())
        if not found:
            with self._box, tag("p", "s-row s-muted"):
                text("There is no data set to test with: ")
                ui.link("add one", "/datasets")
            return
        self._dataset = found[0].id
        with self._box:
            with tag("fieldset", "s-row s-plain-group"):
                tag_text("legend", "What to score", "s-sr")
                radio(
                    "answers",
                    "Reference answers",
                    True,
                    lambda: self._choose(False),
                    hint="A correct reward gives each of them the maximum score.",
                )
                radio(
                    "answers",
                    "Your own completions",
                    False,
                    lambda: self._choose(True),
                    hint="For one row: good ones, bad ones, attempts to game the reward.",
                )
            with tag("div", "s-fields"):
                names = {dataset.id: dataset.name for dataset in found}
                choice_field("Data set", names, self._dataset, self._chose_dataset)
                self._count = number_field("Rows", ROWS, lambda value: setattr(self, "_rows", value), step=1)
                self._place = number_field("Line", 1, self._chose_line, step=1)
            self._prompt = tag("div", "s-column s-tight")
            self._own = tag("div")
            with self._own:
                area_field(
                    "Completions",
                    "",
                    lambda value: setattr(self, "_answers", value),
                    hint=f"Separate completions with a line that contains only {SEPARATOR}",
                )
            with tag("div", "s-row"):
                self._start = button("Test", self._test, "primary")
                self._stop = button("Stop", self._forget)
            self._results = tag("div", "s-column", 'aria-live="polite"')
        self._stop.set_visibility(False)
        self._show_fields()

    def _show_fields(self) -> None:
        for element, shown in ((self._count, not self._pasted), (self._place, self._pasted)):
            slot = element.parent_slot
            assert slot is not None
            slot.parent.set_visibility(shown)
        self._own.set_visibility(self._pasted)
        self._prompt.set_visibility(self._pasted)

    async def _choose(self, pasted: bool) -> None:
        self._pasted = pasted
        self._show_fields()
        await self._show_prompt()

    async def _chose_dataset(self, dataset: str) -> None:
        self._dataset = dataset
        await self._show_prompt()

    async def _chose_line(self, line: float | None) -> None:
        self._line = line
        await self._show_prompt()

    async def _show_prompt(self) -> None:
        """What the row asks that answers are pasted for."""
        if not self._pasted:
            return
        try:
            row = await self._row()
        except StropError as error:
            row, problem = None, error.message
        else:
            problem = "no row stands on this line"
        self._prompt.clear()
        with self._prompt:
            if row is None:
                tag_text("p", problem, "s-bad")
            else:
                tag_text("p", preview(row.messages), "s-note")
                if row.reference is not None:
                    tag_text("p", f"Reference: {row.reference}", "s-small s-muted")

    async def _row(self) -> DatasetRow | None:
        """The row on the chosen line, as far as the first ones go; None where there is none."""
        found = (await datasets.list_rows(services(), self._dataset or "", limit=200)).data
        return next((row for row in found if row.line == self._line), None)

    async def _test(self) -> None:
        try:
            body = await self._request()
        except (StropError, ValueError) as error:
            self._refuse("\n".join(faults(error).values()))
            return
        asked = self._running = object()
        self._results.clear()
        with self._results, tag("p", "s-row s-muted"):
            ui.spinner(size="1em")
            text(" Scoring in a separate process…")
        self._start.disable()
        self._stop.set_visibility(True)
        result: TrialObject | StropError
        try:
            result = await reward_tests.run(services(), body)
        except StropError as error:
            result = error
        if asked is not self._running:
            return  # stopped
        self._end()
        if isinstance(result, StropError):
            self._refuse(result.message)
        else:
            with self._results:
                if not self._pasted and result.summary.highest == 0:
                    doubt = (
                        "Every reference answer scored 0. Either the rows do not fit this reward, or the reward is "
                        "too strict."
                    )
                    tag_text("p", doubt, "s-error")
                draw_scores(result.data)

    async def _request(self) -> TrialRequest:
        rewards = [self._option()]
        if not self._pasted:
            limit = self._rows or ROWS
            return TrialRequest.model_validate({"rewards": rewards, "dataset_id": self._dataset, "limit": limit})
        row = await self._row()
        answers = split_answers(self._answers)
        return TrialRequest.model_validate(
            {"rewards": rewards, "rows": [row.fields] if row else [], "answers": [answers]}
        )

    def _refuse(self, message: str) -> None:
        self._results.clear()
        with self._results:
            tag_text("p", message, "s-error", 'role="alert"')

    def _forget(self) -> None:
        """Stop waiting. What was started ends by itself, in bounded time."""
        self._running = None
        self._end()

    def _end(self) -> None:
        self._results.clear()
        self._start.enable()
        self._stop.set_visibility(False)


def split_answers(text: str) -> list[str]:
    """Pasted answers, parted by lines that hold nothing but the separator."""
    answers = [""]
    for line in text.splitlines():
        if line.strip() == SEPARATOR:
            answers.append("")
        else:
            answers[-1] += f"{line}\n"
    return [answer.removesuffix("\n") for answer in answers]
