"""What a data set holds, and how long its prompts are for a model."""

from __future__ import annotations

from nicegui import ui

from strop.errors import StropError
from strop.services.data_checks import Check, CheckReport, PromptReport, check_dataset
from strop.types import Json
from strop.web.context import services
from strop.web.histogram import bars, draw_bars
from strop.web.theme import facts, tag, tag_text, text

_BARS = 32


class PromptCheck:
    """Counts the rows of a data set in the background, and shows what it found."""

    def __init__(self) -> None:
        self._box = tag("div", "s-column", 'aria-live="polite"')
        self._asked: object = None
        self.report: CheckReport | None = None

    async def look(self, dataset_id: str, model: str | None, limit: int | None, template: Json = None) -> None:
        """Count the rows of a data set. Only the result of the latest call is shown."""
        asked = self._asked = (dataset_id, model, limit)
        self._box.clear()
        with self._box, tag("p", "s-row s-muted"):
            ui.spinner(size="1em")
            text(" Counting the rows" + (f" and the tokens of their prompts for {model}…" if model else "…"))
        try:
            wanted = Check(model=model, max_prompt_tokens=limit, template=template or {})
            report = await check_dataset(services(), dataset_id, wanted)
        except StropError as error:
            if asked == self._asked:
                self._box.clear()
                with self._box:
                    tag_text("p", error.message, "s-error", 'role="alert"')
            return
        if asked == self._asked and not self._box.is_deleted:
            self.report = report
            self._box.clear()
            with self._box:
                _draw(report)


def _draw(report: CheckReport) -> None:
    with tag("dl", "s-figures"):
        for name, value in _figures(report):
            with tag("div"):
                tag_text("dt", name)
                tag_text("dd", value, "mono")
    if report.faults:
        _faults(report)
    if report.prompts is not None:
        _prompts(report.prompts)
    elif report.prompts_unknown:
        tag_text("p", f"Prompt lengths were not counted: {report.prompts_unknown}", "s-note")
    if report.fields:
        with tag("details"):
            tag_text("summary", "Row fields", "s-small s-muted")
            facts((name, f"in {count:,} of {report.rows:,} rows") for name, count in report.fields.items())


def _figures(report: CheckReport) -> list[tuple[str, str]]:
    found = [("Rows", f"{report.rows:,}"), ("With reference", f"{report.with_reference:,}")]
    if report.with_tools:
        found.append(("With tools", f"{report.with_tools:,}"))
    if report.repeated:
        found.append(("Duplicates", f"{report.repeated:,}"))
    found.append(("Errors", f"{report.faults:,}" if report.faults else "none"))
    if report.prompts and report.prompts.dropped is not None:
        found.append(("Prompts dropped", f"{report.prompts.dropped:,} of {report.prompts.counted:,}"))
    return found


def _faults(report: CheckReport) -> None:
    with tag("div", "s-table-wrap"), tag("table", "s-table"):
        with tag("thead"), tag("tr"):
            tag_text("th", "Line", "s-number")
            tag_text("th", "Problem and fix")
        with tag("tbody"):
            for fault in report.first_faults:
                with tag("tr"):
                    tag_text("td", str(fault.line or ""), "s-number mono")
                    tag_text("td", f"{fault.problem}; {fault.remedy}", "s-break")
    left = report.faults - len(report.first_faults)
    if left > 0:
        tag_text("p", f"and {left:,} more", "s-small s-muted")


def _prompts(found: PromptReport) -> None:
    if found.refused:
        lines = ", ".join(str(fault["line"]) for fault in found.first_refused)
        problem = f"{found.refused:,} prompts are rejected by the chat template of {found.model} (lines {lines}): "
        tag_text("p", problem + str(found.first_refused[0]["message"]), "s-error", 'role="alert"')
    draw_bars(bars(found.lengths, _BARS, whole=True), f"tokens per prompt, for {found.model}", limit=found.limit)
    if found.quantiles:
        named = {"0.5": "half of them", "0.95": "95 %", "1.0": "all"}
        said = [
            f"{named[share]} have at most {length:,}" for share, length in found.quantiles.items() if share in named
        ]
        tag_text("p", f"{', '.join(said).capitalize()} tokens.", "s-small s-muted")
    if found.dropped:
        share = found.dropped / found.counted
        tag_text(
            "p",
            f"{found.dropped:,} prompts ({share:.0%}) have more than {found.limit:,} tokens and are dropped from "
            "training. Raise the limit to keep them.",
            "s-warn" if share < 0.5 else "s-bad",
        )
