"""Warning signs of a run, each with its evidence, the likely cause, and what to do."""

from __future__ import annotations

from nicegui import ui

from strop.api.strop.findings import curves_of
from strop.insight.doctor import diagnose
from strop.insight.findings import Finding, Severity
from strop.web.pages.tabs.subject import Subject
from strop.web.theme import tag, tag_text, text

REFRESH_S = 5.0
_TONES = {Severity.CRITICAL: "bad", Severity.WARNING: "warn", Severity.NOTICE: "", Severity.GOOD: "good"}


class Findings:
    """A section that is not there while nothing stands out."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._shown: list[Finding] = []
        self._box = tag("section", "s-column", 'aria-label="Warning signs" aria-live="polite"')
        self.refresh()
        if subject.active:
            ui.timer(REFRESH_S, self.refresh)

    def refresh(self) -> None:
        """Look at the curves again."""
        with self._subject.services.database.read() as connection:
            curves = curves_of(connection, self._subject.run_id or "")
        found = diagnose(curves)
        if found == self._shown:
            return
        self._shown = found
        self._box.clear()
        with self._box:
            for finding in found:
                _card(finding)


def _card(finding: Finding) -> None:
    tone = _TONES[finding.severity]
    with tag("article", f"s-card s-finding s-finding--{tone or 'plain'}"):
        with tag("div", "s-row"):
            tag_text("span", str(finding.severity), f"s-badge {f's-badge--{tone}' if tone else ''}")
            tag_text("h3", finding.symptom)
        text(f"Likely cause: {finding.cause}")
        tag_text("p", finding.action, "s-strong")
        for evidence in finding.evidence:
            tag_text("p", str(evidence), "mono s-small s-muted")
