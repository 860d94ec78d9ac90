"""The frame of the wizard: the steps, the draft behind them, and what is wrong with it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from nicegui import ui

from strop.errors import StropError
from strop.services.drafts.book import Book
from strop.services.drafts.check import Checked, check
from strop.services.drafts.draft import JobDraft
from strop.services.drafts.parameters import PARAMETERS, default_of
from strop.types import Json
from strop.web.context import Address, services
from strop.web.forms import Complaining, complain
from strop.web.theme import button, confirm, failed, tag, tag_text, text

_LOOK_S = 0.5
Control = TypeVar("Control", bound=Complaining)


@dataclass(frozen=True)
class Step:
    """One step: its name in the address, its title, and what draws it."""

    name: str
    title: str
    build: Callable[[Wizard], Awaitable[None]]


class Wizard:
    """One page of the wizard."""

    def __init__(self, steps: Sequence[Step], book: Book, address: Address, draft_id: str, draft: JobDraft) -> None:
        """`draft_id` is empty while nothing was filled in: then there is nothing to keep."""
        self._steps, self.book, self._address = steps, book, address
        self._id, self._fresh = draft_id, draft
        self.faults: dict[str, str] = {}
        """By field of the request, as the last look at the draft found them."""
        self._fields: list[tuple[Complaining, tuple[str, ...]]] = []
        self._drawing = asyncio.Lock()
        wanted = address.values.get("step")
        self._step = next((step for step in steps if step.name == wanted), steps[0])

    # What the steps use.

    @property
    def draft(self) -> JobDraft:
        """What is filled in."""
        return self.book.draft(self._id) if self._id else self._fresh

    @property
    def draft_id(self) -> str:
        """Id of the draft; it is kept from now on."""
        if not self._id:
            self._id = self.book.begin(self._fresh)
            self._address.set({"draft": self._id})
            self._above.clear()
        return self._id

    def change(self, how: Callable[[JobDraft], JobDraft], *fields: str) -> None:
        """Change the draft. What was wrong with these fields of the request is no longer known."""
        self.book.change(self.draft_id, how)
        for field in fields:
            for name in [name for name in self.faults if within(name, field)]:
                del self.faults[name]
        for control, named in self._fields:
            if set(named) & set(fields):
                complain(control, "")

    def set_value(self, key: str, value: Json) -> None:
        """Change a parameter."""
        known = PARAMETERS.get(key)
        left_out = None if known and known.empty else default_of(key)
        self.change(lambda draft: draft.with_value(key, value, left_out), f"strop.{key}")

    def fault(self, *fields: str) -> str:
        """What is wrong with fields, or with what is inside them; empty where nothing is known to be."""
        return next((text for name, text in self.faults.items() if any(within(name, field) for field in fields)), "")

    def at(self, control: Control, *fields: str) -> Control:
        """Let what is wrong with fields of the request show at their control."""
        self._fields.append((control, fields))
        complain(control, self.fault(*fields))
        return control

    async def look(self) -> Checked:
        """Validate the current draft on the server."""
        found = await check(services(), self.draft)
        self.faults = dict(found.faults)
        return found

    async def go(self, name: str) -> None:
        """Show another step, which has an address of its own."""
        self._step = next(step for step in self._steps if step.name == name)
        with self._box:  # what asked for this is about to go
            self._address.set({"draft": self.draft_id, "step": name}, push=True)
            await self.draw()
            ui.run_javascript("document.getElementById('main').focus(); window.scrollTo(0, 0)")

    async def finish(self, job_id: str) -> None:
        """The job is created: show it."""
        await self.book.finish(self.draft_id, job_id)
        with self._box:
            ui.navigate.to(f"/experiments/{job_id}")

    # How it is drawn.

    async def build(self, above: Callable[[], Awaitable[None]] | None = None) -> None:
        """Draw the page; `above` draws what stands over the first step while nothing is filled in."""
        with tag("div", "s-row"):
            tag_text("h1", "New job", "s-grow")
            self._state = text("", "s-small s-muted")
            self._state.props('role="status"')
            self._drop = button("Delete the draft", self._delete, "bare")
        self._bar = tag("nav", "s-steps", 'aria-label="Steps"')
        self._above = tag("div", "s-column s-problem")
        if above is not None:
            with self._above:
                await above()
        self._problem = tag("div", "s-column s-problem")
        self._box = tag("div", "s-column s-step")
        await self.draw()
        ui.timer(_LOOK_S, self._show_state)

    async def draw(self) -> None:
        """Draw the step, and where it stands among the others."""
        async with self._drawing:  # a second click may arrive meanwhile
            self._fields = []
            self._draw_bar()
            self._problem.clear()
            self._box.clear()
            with self._box:
                try:
                    await self._step.build(self)
                except StropError as error:
                    tag_text("p", error.message, "s-error", 'role="alert"')
                self._draw_foot()
            self._draw_bar()  # a step may have looked at the draft

    def redraw_faults(self) -> None:
        """Show what the last look found at the fields that are drawn, and above them what has no field here."""
        for control, fields in self._fields:
            complain(control, self.fault(*fields))
        self._draw_bar()
        self._problem.clear()
        shown = [field for _, fields in self._fields for field in fields]
        with self._problem:
            for name, message in self.faults.items():
                if step_of(name) == self._step.name and not any(within(name, field) for field in shown):
                    tag_text("p", message, "s-error", 'role="alert"')

    def _draw_bar(self) -> None:
        self._bar.clear()
        wrong = {step_of(name) for name in self.faults}
        with self._bar, tag("ol"):
            for number, step in enumerate(self._steps, 1):
                with tag("li"):
                    control = tag("button", "s-step-button", 'type="button"')
                    if step is self._step:
                        control.props('aria-current="step"')
                    control.on("click", lambda name=step.name: self.go(name), args=[])
                    with control:
                        done = self._is_done(step.name) and step is not self._step
                        mark = "!" if step.name in wrong else "✓" if done else str(number)
                        tone = "s-step-number--bad" if step.name in wrong else "s-step-number--done" if done else ""
                        tag_text("span", mark, f"s-step-number {tone}", 'aria-hidden="true"')
                        tag_text("span", step.title, "s-step-title")
                        if step.name in wrong:
                            tag_text("span", "has a fault", "s-sr")
                        elif done:
                            tag_text("span", "is filled in", "s-sr")

    def _is_done(self, name: str) -> bool:
        draft = self.draft
        filled = {"model": draft.model, "dataset": draft.train, "tools": draft.train, "reward": draft.rewards}
        return bool(filled.get(name))

    def _draw_foot(self) -> None:
        place = self._steps.index(self._step)
        with tag("div", "s-row s-foot"):
            if place:
                before = self._steps[place - 1]
                button(f"Back: {before.title}", lambda: self.go(before.name))
            tag("span", "s-grow")
            if place + 1 < len(self._steps):
                after = self._steps[place + 1]
                button(f"Next: {after.title}", lambda: self._next(after), "primary")

    async def _next(self, after: Step) -> None:
        """On to the next step, unless the server has something against this one."""
        await self.look()
        if self._step.name in {step_of(name) for name in self.faults}:
            self.redraw_faults()
            return
        self.faults = {}  # of what nobody has filled in yet
        await self.go(after.name)

    def _show_state(self) -> None:
        problem = self.book.problem(self._id) if self._id else ""
        if problem is None:
            state = "Saving…"
        elif problem:
            state = f"Not saved: {problem}"
        else:
            state = "Draft saved" if self._id else ""
        if self._state.text != state:
            self._state.set_text(state)
        self._drop.set_visibility(bool(self._id))

    async def _delete(self) -> None:
        if await confirm(
            "Delete this draft?", "All settings of this draft are deleted. Data sets and rewards are kept.", "Delete"
        ):
            try:
                await self.book.delete(self._id)
            except StropError as error:
                failed(error.message)
            else:
                ui.navigate.to("/jobs/new")


_STEPS: Mapping[str, str] = {
    "model": "model",
    "strop.train.method": "model",
    "training_file": "dataset",
    "validation_file": "dataset",
    "strop.rewards": "reward",
    "strop.name": "review",
    "strop": "tools",
}


def step_of(field: str) -> str:
    """The step that a field of the request is filled in at."""
    return next((step for start, step in _STEPS.items() if within(field, start)), "review")


def within(name: str, field: str) -> bool:
    """Whether a name is that of a field, or of something inside it."""
    return name == field or name.startswith((f"{field}.", f"{field}["))
