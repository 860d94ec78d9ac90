"""`/experiments/{name}`: one run, by its job or by itself, in tabs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nicegui import ui

from strop.errors import NotFound
from strop.web.context import Address
from strop.web.pages.tabs import checkpoints, files, metrics, overview, rollouts
from strop.web.pages.tabs.header import Header
from strop.web.pages.tabs.subject import Build, Subject
from strop.web.theme import missing, page, tag_text

REFRESH_S = 2.0


@dataclass(frozen=True)
class Tab:
    """A tab and what builds its content, once it is opened."""

    name: str
    build: Build


TABS = (
    Tab("Overview", overview.build),
    Tab("Metrics", metrics.build),
    Tab("Rollouts", rollouts.build),
    Tab("Checkpoints", checkpoints.build),
    Tab("Files", files.build_files),
    Tab("Logs", files.build_logs),
)


@ui.page("/experiments/{name}")
async def experiment_page(name: str) -> None:
    """A run and all that is known of it."""
    address = Address.of_page()
    try:
        subject = await Subject.find(name)
    except NotFound as error:
        missing("Jobs", f"{error.message}. It may have been deleted.")
        return
    with page(subject.name, "Jobs"):
        header = Header(subject)
        if not subject.run_id:
            _wait_for_run(subject, header)
            return
        await _tabs(subject, address)
        _follow(subject, header)


def _follow(subject: Subject, header: Header) -> None:
    """Keep the head of the page up to date. Rebuild it when a paused run resumes."""
    resting = not subject.active

    async def look() -> None:
        nonlocal resting
        await header.refresh()
        if resting and subject.active:
            resting = False
            ui.navigate.reload()

    ui.timer(REFRESH_S, look)


def _wait_for_run(subject: Subject, header: Header) -> None:
    """A job that did not start yet has nothing to show but its place in the queue."""
    tag_text("p", "Charts appear here when training starts.", "s-empty")

    async def look() -> None:
        await header.refresh()
        if subject.run_id:
            ui.navigate.reload()

    ui.timer(REFRESH_S, look)


async def _tabs(subject: Subject, address: Address) -> None:
    chosen = next((tab for tab in TABS if tab.name.lower() == address.values.get("tab")), TABS[0])
    built: set[str] = set()
    with ui.tabs().classes("w-full").props("align=left outside-arrows mobile-arrows inline-label no-caps") as bar:
        for tab in TABS:
            ui.tab(tab.name)
    panels: dict[str, Any] = {}
    with ui.tab_panels(bar, value=chosen.name, animated=False, keep_alive=True):
        for tab in TABS:
            panels[tab.name] = ui.tab_panel(tab.name)

    async def show(name: str) -> None:
        tab = next(tab for tab in TABS if tab.name == name)
        if name not in built:
            built.add(name)
            with panels[name]:
                await tab.build(subject, address)

    async def changed(name: str) -> None:
        address.set({"tab": name.lower() if name != TABS[0].name else ""})
        await show(name)

    await show(chosen.name)
    bar.on_value_change(lambda event: changed(event.value))
    subject.open_tab = lambda name: bar.set_value(name)
