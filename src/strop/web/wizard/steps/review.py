"""Step 5: everything once more, what it will take, and the button that creates the job."""

from __future__ import annotations

from functools import partial

from nicegui import ui

from strop.errors import StropError
from strop.services import jobs
from strop.services.drafts.review import exports, review
from strop.services.field_errors import faults
from strop.web.context import services
from strop.web.editor import code_editor
from strop.web.forms import text_field
from strop.web.theme import button, tag, tag_text, text
from strop.web.wizard.frame import Wizard, step_of


async def build(wizard: Wizard) -> None:
    """Draw the step."""
    await ReviewStep(wizard).build()


class ReviewStep:
    """The whole job, to be looked at and created."""

    def __init__(self, wizard: Wizard) -> None:
        self._wizard = wizard
        self._sure = False

    async def build(self) -> None:
        """Draw it."""
        checked = await self._wizard.look()
        draft = self._wizard.draft
        found = await review(services(), draft)
        self._draw_faults()
        with tag("section", "s-card", 'aria-labelledby="job"'):
            tag_text("h2", "Job", props='id="job"')
            with tag("div", "s-fields"):
                name = text_field(
                    "Name",
                    draft.name,
                    self._set_name,
                    placeholder=found.usual_name,
                    hint="Name of the job and its run.",
                )
                self._wizard.at(name, "strop.name")
            for row in found.values:
                self._row(*row) if row[2] else None
        with tag("section", "s-card", 'aria-labelledby="takes"'):
            tag_text("h2", "Time and memory", props='id="takes"')
            for line, tone in found.takes:
                tag_text("p", line, f"s-{tone}" if tone else "")
        with tag("section", "s-card", 'aria-labelledby="create"'):
            tag_text("h2", "Create", props='id="create"')
            ui.checkbox(
                "I have reviewed these settings and want to train.", on_change=lambda event: self._agree(event.value)
            )
            with tag("div", "s-row"):
                self._create = button("Confirm & Create", self._make, "primary")
            self._refusal = tag("div")
        with tag("details", "s-card") as shown:
            tag_text("summary", "Show as TOML / curl / Python")
            self._export = tag("div", "s-column s-after-summary")
        shown.on("toggle", self._draw_export, args=[])
        self._agree(False)
        self._ready = not checked.faults

    def _draw_faults(self) -> None:
        """Problems, each with a link to the step where it is fixed."""
        with tag("div", "s-column") as self._faults:
            for name, message in self._wizard.faults.items():
                with tag("div", "s-error s-row", 'role="alert"'):
                    text(f"{name}: {message}", "s-grow s-break")
                    button("Fix", partial(self._wizard.go, step_of(name)))

    def _row(self, field: str, value: str, step: str) -> None:
        with tag("div", "s-review-row"):
            tag_text("span", field, "s-muted")
            tag_text("span", value, "s-break")
            change = button("Change", partial(self._wizard.go, step), "bare")
            change.props["aria-label"] = f"Change {field}"

    def _set_name(self, name: str) -> None:
        self._wizard.change(lambda draft: draft.model_copy(update={"name": name.strip()}), "strop.name")

    def _agree(self, sure: bool) -> None:
        self._sure = sure
        self._create.set_enabled(sure)

    async def _make(self) -> None:
        self._create.disable()
        checked = await self._wizard.look()
        try:
            if checked.request is not None:
                job = await jobs.create(services(), checked.request)
                await self._wizard.finish(job.id)
                return
        except (StropError, ValueError) as error:
            self._wizard.faults |= faults(error)
        await self._wizard.draw()
        self._wizard.redraw_faults()

    async def _draw_export(self) -> None:
        if self._export.slots["default"].children:
            return
        checked = await self._wizard.look()
        request = ui.context.client.request
        url = str(request.base_url).rstrip("/") if request else ""
        if self._export.is_deleted:  # the wizard shows another step by now
            return
        self._export.clear()
        with self._export:
            if checked.request is None or checked.order is None:
                tag_text(
                    "p", "Some settings are missing or invalid (see above), so there is no job to show yet.", "s-muted"
                )
                return
            texts = await exports(services(), checked, url)
            text("The same job with the same seed. Files and rewards are stored on this server.", "s-muted")
            with ui.tabs().props("align=left inline-label no-caps") as bar:
                for name in texts:
                    ui.tab(name)
            with ui.tab_panels(bar, value="TOML", animated=False):
                for name, (language, content) in texts.items():
                    with ui.tab_panel(name):
                        code_editor(f"The job as {name}", content, language)
                        with tag("div", "s-row"):
                            button("Copy", partial(ui.clipboard.write, content))
