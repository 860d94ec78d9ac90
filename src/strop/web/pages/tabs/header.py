"""The head of an experiment: where it stands, in one line, and what can be done with it."""

from __future__ import annotations

import time
from typing import Any

from nicegui import ui

from strop.errors import StropError
from strop.jobs.task import TaskStatus
from strop.services import jobs
from strop.services.numbers import clock
from strop.services.runs import Experiment
from strop.web.context import services
from strop.web.pages.tabs.subject import Subject
from strop.web.theme import badge, button, failed, tag, tag_text, text

_PENDING = {"pause": "Pausing…", "cancel": "Cancelling…"}


class Header:
    """Shows a subject, and is refreshed while it changes."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._shown: Any = None
        self._state: Any = None
        with tag("header", "s-column"):
            self._top = tag("div", "s-column")
            self._figures = tag("div", "s-column")
        self._show(subject.newest)

    async def refresh(self) -> None:
        """Read the subject again, and draw what changed.

        Buttons, and with them the keyboard focus, stay until the state changes.
        """
        found = await self._subject.refresh()
        if not self._top.is_deleted:
            self._show(found)

    def _show(self, subject: Experiment) -> None:
        facts = _facts(subject)
        state = (subject.state, subject.job and (subject.job.requested, subject.job.reason), subject.run.get("message"))
        if state != self._state:
            self._state = state
            self._top.clear()
            with self._top:
                self._draw(subject)
        if facts != self._shown:
            self._shown = facts
            self._figures.clear()
            with self._figures:
                _draw_figures(subject, facts)

    def _draw(self, subject: Experiment) -> None:
        with tag("div", "s-row"):
            tag_text("h1", subject.name)
            badge(subject.state)
            if subject.job and subject.job.requested:
                text(_PENDING[subject.job.requested], "s-muted")
            tag("span", "s-grow")
            self._actions(subject)
        reason = (subject.job.reason if subject.job else None) or subject.run.get("message")
        if reason:
            tag_text("p", str(reason), "s-error" if subject.state == "failed" else "s-note")

    def _actions(self, subject: Experiment) -> None:
        job = subject.job
        if job is None:
            return
        if job.status in (TaskStatus.QUEUED, TaskStatus.RUNNING) and job.requested is None:
            self._button("Pause", lambda: jobs.ask(services(), job.id, "pause"))
        if job.status in (TaskStatus.PAUSED, TaskStatus.FAILED):
            self._button("Resume", lambda: jobs.resume(services(), job.id))
        if not job.status.finished and job.requested != "cancel":
            self._button("Cancel", lambda: jobs.ask(services(), job.id, "cancel"))
        button("Clone", lambda: ui.navigate.to(f"/jobs/new?clone={job.id}"))

    def _button(self, label: str, act: Any) -> None:
        async def pressed() -> None:
            try:
                await act()
            except StropError as error:
                failed(error.message)
            await self.refresh()

        button(label, pressed)


def _facts(subject: Experiment) -> tuple[tuple[str, str], ...]:
    if not subject.run:
        place = subject.position
        return (("Queue", "next" if place == 1 else f"number {place}"),) if place else ()
    run = subject.run
    latest, total = run["metrics"]["latest"], run["total_steps"]
    active = subject.state in ("running", "starting")
    ends = time.time() if active else run["updated_at"]
    left = subject.seconds_left if active else None
    return (
        ("Progress", f"{100 * run['step'] / total:.0f} %" if total else "–"),
        ("Step", f"{run['step']} of {total or '?'}"),
        ("Loss", _scientific(latest.get("loss"))),
        ("Gradient norm", _short(latest.get("grad_norm"))),
        ("Learning rate", _scientific(latest.get("learning_rate"))),
        ("Elapsed", clock(max(ends - run["created_at"], 0))),
        *(
            (("Time left", clock(left) if left is not None else "–"), ("Phase", str(run["phase"] or "–")))
            if active
            else ()
        ),
    )


def _draw_figures(subject: Experiment, facts: tuple[tuple[str, str], ...]) -> None:
    step, total = subject.run.get("step", 0), subject.run.get("total_steps")
    if total:
        bar = tag("div", "s-progress", f'role="progressbar" aria-label="Progress" aria-valuemax="{total}"')
        bar.props(f'aria-valuemin="0" aria-valuenow="{step}"')
        with bar:
            tag("div").style(f"width: {100 * step / total:.1f}%")
    with tag("dl", "s-figures"):
        for name, value in facts:
            with tag("div"):
                tag_text("dt", name)
                tag_text("dd", value, "mono")
    if subject.summary:
        tag_text("p", subject.summary, "mono s-muted")


def _scientific(value: float | None) -> str:
    return "–" if value is None else f"{value:.2e}"


def _short(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
