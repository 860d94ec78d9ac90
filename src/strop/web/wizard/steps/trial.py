"""The test in the reward step: its fields, its progress, and its result."""

from __future__ import annotations

from nicegui import ui

from strop.services.drafts.base_model_test import MOST_ROWS, ROWS, ModelTest, Phase, sample_count
from strop.services.drafts.draft import Trial
from strop.services.numbers import clock
from strop.web.context import services
from strop.web.forms import number_field
from strop.web.scores import draw_scores
from strop.web.theme import button, tag, tag_text, text
from strop.web.wizard.frame import Wizard

_LOOK_S = 0.4


class TrialPanel:
    """Starts a test, follows it, and shows the results of the newest one."""

    def __init__(self, wizard: Wizard) -> None:
        self._wizard = wizard
        self._rows: float | None = ROWS
        self._shown: object = None
        text(
            "Samples completions for the first rows with the base model and the training settings, and scores them. "
            "Only prompts whose completions get different rewards give a gradient.",
            "s-muted",
        )
        with tag("div", "s-row s-bottom-aligned"):
            number_field("Rows", ROWS, lambda value: setattr(self, "_rows", value), step=1)
            self._start = button("Test", self._begin, "primary")
            self._stop = button("Stop", self._end)
        self._progress = tag("div", "s-column s-tight", 'aria-live="polite"')
        self._results = tag("div", "s-column")
        self._look()
        ui.timer(_LOOK_S, self._look)

    @property
    def _test(self) -> ModelTest | None:
        return self._wizard.book.tests.get(self._wizard.draft_id)

    async def _begin(self) -> None:
        checked = await self._wizard.look()
        wrong = {name: text for name, text in checked.faults.items() if not name.startswith("validation")}
        self._wizard.redraw_faults()
        if wrong:
            self._refuse(wrong)
            return
        draft, draft_id, book = self._wizard.draft, self._wizard.draft_id, self._wizard.book
        rows = min(max(int(self._rows or ROWS), 1), MOST_ROWS)
        test = book.tests[draft_id] = ModelTest(services(), draft, rows, sample_count(draft))

        def keep(trial: Trial) -> None:
            book.change(draft_id, lambda newest: newest.model_copy(update={"trial": trial}))

        test.start(keep)
        self._look()

    def _refuse(self, wrong: dict[str, str]) -> None:
        self._progress.clear()
        with self._progress:
            for message in dict.fromkeys(wrong.values()):
                tag_text("p", message, "s-error", 'role="alert"')

    async def _end(self) -> None:
        if self._test is not None:
            await self._test.stop()
        self._look()

    def _look(self) -> None:
        """Show how far the test is, if that has changed."""
        test, draft = self._test, self._wizard.draft
        running = test is not None and test.phase.running
        stale = draft.trial is not None and draft.trial.of != draft.tested
        state = (test and (id(test), test.phase, test.answered, len(test.tried)), id(draft.trial), stale)
        if state == self._shown:
            return
        self._shown = state
        self._start.set_enabled(not running)
        self._stop.set_visibility(running)
        if test is not None:
            self._draw_progress(test)
        self._results.clear()
        with self._results:
            if test is not None and (running or test.phase in (Phase.FAILED, Phase.STOPPED)):
                if test.tried:
                    draw_scores(test.tried)
            elif draft.trial is not None:
                self._draw(draft.trial, stale)

    def _draw_progress(self, test: ModelTest) -> None:
        self._progress.clear()
        with self._progress:
            if test.phase is Phase.FAILED and test.fault is not None:
                tag_text("p", test.fault.message, "s-error", 'role="alert"')
            elif test.phase is Phase.STOPPED:
                tag_text("p", "Stopped.", "s-muted")
            elif test.phase.running:
                share = test.answered / test.wanted if test.wanted else 0
                told = f"{test.phase.value.capitalize()}: {test.answered} of {test.wanted} completions"
                tag_text(
                    "p",
                    f"{told}, {len(test.tried)} of {test.rows} rows scored" if test.wanted else "Loading the model…",
                )
                bar = tag(
                    "div", "s-progress", 'role="progressbar" aria-label="Test" aria-valuemin="0" aria-valuemax="100"'
                )
                bar.props["aria-valuenow"] = round(100 * share)
                with bar:
                    tag("div").style(f"width: {100 * share:.0f}%")

    def _draw(self, trial: Trial, stale: bool) -> None:
        if stale:
            tag_text("p", "Settings changed since this test. Test again.", "s-note s-warn")
        draw_scores(trial.rows)
        length, rate = trial.tokens / max(trial.answers, 1), trial.tokens / max(trial.seconds, 0.001)
        told = f"{length:.0f} tokens per completion, {rate:.0f} tokens per second, sampled in {clock(trial.seconds)}"
        if trial.cut_off:
            told += f"; {trial.cut_off} of {trial.answers} were truncated: raise Max response length"
        tag_text("p", f"{told}.", "s-small s-muted")
