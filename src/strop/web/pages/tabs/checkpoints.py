"""The checkpoints of a run: what they are, and what to do with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nicegui import ui

from strop.errors import StropError
from strop.store import queries
from strop.store.checkpoints import read_checkpoint
from strop.web.context import Address
from strop.web.numbers import size
from strop.web.pages.tabs.subject import Subject
from strop.web.theme import badge, button, failed, since, tag, tag_text

REFRESH_S = 4.0


def build(subject: Subject, address: Address) -> None:
    """A table that grows while the run saves."""
    box = tag("div", "s-column")
    shown: list[Any] = []

    def refresh() -> None:
        with subject.services.database.read() as connection:
            found = list(reversed(queries.checkpoints(connection, subject.run_id or "")))
        if found != shown or not box.slots["default"].children:
            shown[:] = found
            box.clear()
            with box:
                _table(subject, found)

    refresh()
    ui.timer(REFRESH_S, refresh)


def _table(subject: Subject, found: list[dict[str, Any]]) -> None:
    if not found:
        tag_text("p", "No checkpoints yet. One is saved every save_every steps and at the end of training.", "s-empty")
        return
    with tag("div", "s-table-wrap"), tag("table", "s-table"):
        with tag("thead"), tag("tr"):
            for name in ("Checkpoint", "Format", "Files", "Size", "Validation reward", "Saved", ""):
                tag_text("th", name)
        with tag("tbody", props="data-list"):
            for entry in found:
                _row(subject, entry)


def _row(subject: Subject, entry: Mapping[str, Any]) -> None:
    folder = subject.services.ingester.folder(subject.run_id or "") / entry["path"]
    try:
        files: Mapping[str, Any] = read_checkpoint(folder).files
    except StropError:
        files = {}
    reward = entry["validation_reward"]
    with tag("tr"):
        with tag("td"), tag("div", "s-row"):
            tag_text("strong", f"Step {entry['step']}")
            for mark in ("best", "latest"):
                if entry[mark]:
                    badge(mark)
        tag_text("td", "HuggingFace, adapter" if "adapter_config.json" in files else "HuggingFace")
        tag_text("td", str(len(files)), "mono")
        tag_text("td", size(entry["bytes"]), "mono")
        tag_text("td", "–" if reward is None else f"{reward:.3f}", "mono")
        with tag("td"):
            since(entry["created_at"])
        with tag("td"), tag("div", "s-row"):
            _actions(subject, entry, files)


def _actions(subject: Subject, entry: Mapping[str, Any], files: Mapping[str, Any]) -> None:
    async def deploy() -> None:
        name = f"{subject.name}-step-{entry['step']}"
        try:
            await subject.services.deployments.create(entry["id"], name)
        except StropError as error:
            failed(error.message)
        else:
            ui.navigate.to(f"/playground?model={name}")

    button("Details", lambda: _details(entry, files))
    button("Deploy", deploy)
    button("Evaluate", lambda: ui.navigate.to(f"/evaluate?checkpoint={entry['id']}"))
    button("Download", lambda: ui.navigate.to(f"/v1/strop/checkpoints/{entry['id']}/archive"))
    if subject.job is not None:
        fork = f"/jobs/new?clone={subject.job.id}&checkpoint={entry['id']}"
        button("Fork", lambda: ui.navigate.to(fork))


def _details(entry: Mapping[str, Any], files: Mapping[str, Any]) -> None:
    with ui.dialog() as dialog, tag("div", "s-dialog"):
        tag_text("h2", f"Step {entry['step']}")
        with tag("div", "s-table-wrap"), tag("table", "s-table"), tag("tbody"):
            for name, file in sorted(files.items()):
                with tag("tr"):
                    tag_text("td", name, "mono")
                    tag_text("td", size(file["size"]), "mono s-number")
        button("Close", dialog.close)
    dialog.on("hide", dialog.delete)
    dialog.open()
