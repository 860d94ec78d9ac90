"""Warning signs of a run, each with its evidence, the likely cause, and what to do."""

from __future__ import annotations

from nicegui import ui

from strop.insight.findings import Severity
from strop.services import findings
from strop.services.findings import FindingObject
from strop.web.context import services
from strop.web.pages.tabs.subject import Subject
from strop.web.theme import tag, tag_text, text

REFRESH_S = 5.0
_TONES = {Severity.CRITICAL: "bad", Severity.WARNING: "warn", Severity.NOTICE: "", Severity.GOOD: "good"}


class Findings:
    """A section that is not there while nothing stands out."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._shown: list[FindingObject] = []
        self._box = tag("section", "s-column", 'aria-label="Warning signs" aria-live="polite"')

    async def build(self) -> None:
        """Draw them, and again while new steps may come."""
        await self.refresh()
        if self._subject.active:
            ui.timer(REFRESH_S, self.refresh)

    async def refresh(self) -> None:
        """Look at the curves again."""
        found = (await findings.of_run(services(), self._subject.run_id)).data
        if found == self._shown or self._box.is_deleted:
            return
        self._shown = found
        self._box.clear()
        with self._box:
            for finding in found:
                _card(finding)


def _card(finding: FindingObject) -> None:
    tone = _TONES[finding.severity]
    with tag("article", f"s-card s-finding s-finding--{tone or 'plain'}"):
        with tag("div", "s-row"):
            tag_text("span", str(finding.severity), f"s-badge {f's-badge--{tone}' if tone else ''}")
            tag_text("h3", finding.symptom)
        text(f"Likely cause: {finding.cause}")
        tag_text("p", finding.action, "s-strong")
        for evidence in finding.evidence:
            tag_text("p", evidence.text, "mono s-small s-muted")
