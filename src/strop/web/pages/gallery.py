"""`/gallery`: every piece that pages are made of, in every state. Not in the navigation: it is for developers.

What reads the API is shown with the newest run of this server, and with a run that does not exist.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from nicegui import ui

from strop.jobs.task import TaskStatus
from strop.services import rollouts
from strop.services.runs import RUN_STATES
from strop.web.charts import OVERVIEW
from strop.web.components import (
    Chart,
    ChartGroup,
    Chat,
    Explorer,
    HeatMap,
    Inspector,
    JobsBoard,
    LogTail,
    MetricGrid,
    Uploader,
)
from strop.web.context import services
from strop.web.histogram import bars, draw_bars
from strop.web.theme import badge, button, confirm, facts, failed, page, since, tag, tag_text, text

MISSING = "run_000000000000000000000000"
LONG = "A-text-that-nobody-broke-into-words-" * 6 + " and then some words that may well be broken. " * 4
_DAY_S = 86_400


@ui.page("/gallery")
async def gallery_page() -> None:
    """All pieces, one section each."""
    with page("Gallery"):
        tag_text("h1", "Gallery")
        found = await rollouts.newest(services())
        run_id, row, rollout = (found.run_id, found.row, found.rollout_id) if found else (MISSING, "none", "ro_0")
        for title, build in (
            ("Buttons", _buttons),
            ("States", _states),
            ("Text", _text),
            ("Tables", _tables),
            ("Fields", _fields),
            ("Notices", _notices),
            ("Charts", lambda: _charts(run_id)),
            ("Jobs", _jobs),
            ("Explorer", lambda: _explorer(run_id)),
            ("Heat map", lambda: _heat_maps(run_id, row, rollout)),
            ("Attempt", lambda: _inspectors(rollout)),
            ("Logs", lambda: _logs(run_id)),
            ("Chat", _chats),
        ):
            _section(title, build)


def _section(title: str, build: Callable[[], None]) -> None:
    with tag("section", "s-column", f'aria-label="{title}"'):
        tag_text("h2", title)
        build()


def _nothing(*_: Any) -> None:
    """What a piece of the gallery does when it is used."""


def _buttons() -> None:
    with tag("div", "s-row"):
        for kind in ("", "primary", "danger", "bare"):
            button(kind.capitalize() or "Plain", _nothing, kind)
            button(f"{kind.capitalize() or 'Plain'}, disabled", _nothing, kind).disable()
    with tag("div", "s-row"):
        for classes in ("s-plain", "s-plain s-plain--primary", "s-plain s-plain--danger", "s-chart-tool", "s-link"):
            tag_text("button", classes.rpartition("-")[2], classes)
            if "link" not in classes:
                tag_text("button", "disabled", classes, "disabled")
        tag_text("button", "pressed", "s-plain", 'aria-pressed="true"')
        tag_text("button", "pressed", "s-chart-tool", 'aria-pressed="true"')


def _states() -> None:
    with tag("div", "s-row"):
        for state in dict.fromkeys([*TaskStatus, *RUN_STATES, "loading", "loaded", "error", "best", "latest"]):
            badge(str(state))
    for percent in (0, 1, 50, 100):
        bar = tag("div", "s-progress", f'role="progressbar" aria-label="{percent} %" aria-valuenow="{percent}"')
        with bar:
            tag("div").style(f"width: {percent}%")
    with tag("div", "s-row"):
        for age in (0, 90, 3 * 3600, 40 * _DAY_S):
            since(time.time() - age)


def _text() -> None:
    for name in ("h2", "h3"):
        tag_text(name, f"Heading {name[1]}")
    tag_text("p", LONG, "s-break")
    facts((("Short", "value"), ("Long", LONG), ("Nothing", "–")))
    tag_text("p", "Loading…", "s-muted", 'aria-busy="true"')
    tag_text("p", "Nothing here yet: what comes, comes here.", "s-empty")
    with tag("div", "s-empty"):
        tag_text("h3", "Nothing here yet")
        text("What it is for, and what to do first.")
        button("Do it", _nothing, "primary")
    tag_text("p", "reward.py:12: the function score returned None; it has to return a number", "s-error")
    tag_text("p", LONG, "s-error")
    tag_text("p", "Paused by a person.", "s-note")
    with tag("details", "s-card"):
        tag_text("summary", "Closed until it is opened")
        tag_text("pre", "def score(completion):\n    return 1.0")
    for tone in ("bad", "warn", "good", "plain"):
        with tag("article", f"s-card s-finding s-finding--{tone}"):
            tag_text("h3", f"A finding that is {tone}")
            text("Likely: the cause")
            tag_text("p", "What to do", "s-strong")
    for values in ([0.1, 0.2, 0.2, 0.7, 1.0], [1.0, 1.0]):
        draw_bars(bars(values), "rewards", digits=2, limit=0.5)


def _tables() -> None:
    with tag("div", "s-table-wrap"), tag("table", "s-table"):
        with tag("thead"), tag("tr"):
            for name in ("Name", "Number", "State", "Saved", ""):
                tag_text("th", name)
        with tag("tbody"):
            for name, number in (("Short", "1"), (LONG, "1,234,567.891"), ("Dora", "–")):
                with tag("tr"):
                    with tag("td", "s-fill"):
                        tag_text("span", name, "s-clip")
                    tag_text("td", number, "mono s-number")
                    with tag("td"):
                        badge("succeeded")
                    with tag("td"):
                        since(time.time() - 300)
                    with tag("td"), tag("div", "s-row"):
                        button("Details", _nothing)
                        button("Deploy", _nothing)


def _fields() -> None:
    with tag("div", "s-fields"):
        ui.input("Empty").props("outlined dense")
        ui.input("Filled", value="a value").props("outlined dense")
        ui.input("Wrong", value="-1").props('outlined dense error error-message="between 1 and 32"')
        ui.input("Disabled", value="fixed").props("outlined dense disable")
        ui.number("Number", value=4).props("outlined dense")
        ui.select(["one", "two"], label="Choice", value="one").props("outlined dense")
    Uploader(on_uploaded=_nothing)


def _notices() -> None:
    async def ask() -> None:
        await confirm("Delete it?", "Its files go with it. This cannot be undone.", "Delete")

    with tag("div", "s-row"):
        button("Say that something failed", lambda: failed("The server is busy; try again in 5 s"))
        button("Ask before something is lost", ask)
        show = "document.getElementById('popup').ariaHidden = document.getElementById('popup').ariaHidden !== 'true'"
        button("Connection lost, and back", lambda: ui.run_javascript(show))


def _charts(run_id: str) -> None:
    never = Chart("A title that is longer than the room that there is for it", "no-such-metric", hint="no values yet")
    for name, run, charts in (("Drawn", run_id, (*OVERVIEW, never)), ("Unknown run", MISSING, (OVERVIEW[0],))):
        runs = [{"id": run, "name": name}]
        MetricGrid(runs, [ChartGroup(name, charts), ChartGroup("Closed", (), open=False)], active=False, initial={})


def _jobs() -> None:
    with JobsBoard({}, on_view=_nothing, on_compare=_nothing, on_clone=_nothing):
        tag_text("p", "No jobs yet", "s-empty")


def _explorer(run_id: str) -> None:
    for run, by in ((run_id, "prompt"), (run_id, "step"), (MISSING, "prompt")):
        Explorer(
            run,
            ["score"],
            active=False,
            step=None,
            initial={"by": by},
            on_view=_nothing,
            on_prompt=_nothing,
            on_step=_nothing,
        ).set_chosen("", 0)


def _heat_maps(run_id: str, row: str, rollout: str) -> None:
    for run, chosen in ((run_id, rollout), (run_id, None), (MISSING, None)):
        HeatMap(
            run,
            row,
            selected=chosen,
            active=False,
            grab=False,
            on_select=_nothing,
            on_close=_nothing,
        )


def _inspectors(rollout: str) -> None:
    for wanted, show in (("", ""), (rollout, ""), (rollout, "tokens"), (rollout, "group"), ("ro_0", "")):
        with tag("div", "s-card"):
            Inspector(wanted, {"show": show, "text": "rendered"}, follows=False, on_open=_nothing, on_view=_nothing)


def _logs(run_id: str) -> None:
    for run in (run_id, MISSING):
        LogTail(run)


def _chats() -> None:
    turns = [
        {"role": "user", "content": "One plus one?"},
        {"role": "assistant", "content": LONG},
        {"role": "user", "content": "Sure?"},
    ]
    Chat([], [], [], {}, on_changed=_nothing)
    Chat(["base", "trained"], ["base", "trained"], turns, {"system": "Be brief."}, on_changed=_nothing)
