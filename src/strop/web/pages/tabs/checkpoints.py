"""The checkpoints of a run: what they are, and what to do with them."""

from __future__ import annotations

from nicegui import ui

from strop.errors import StropError
from strop.services import runs
from strop.services.numbers import size
from strop.services.runs import SavedCheckpoint
from strop.web.context import Address, services
from strop.web.pages.tabs.subject import Subject
from strop.web.theme import badge, button, failed, since, tag, tag_text

REFRESH_S = 4.0


async def build(subject: Subject, address: Address) -> None:
    """A table that grows while the run saves."""
    box = tag("div", "s-column")
    shown: list[SavedCheckpoint] = []

    async def refresh() -> None:
        found = await runs.checkpoints(services(), subject.run_id)
        if box.is_deleted:
            return
        if found != shown or not box.slots["default"].children:
            shown[:] = found
            box.clear()
            with box:
                _table(subject, found)

    await refresh()
    ui.timer(REFRESH_S, refresh)


def _table(subject: Subject, found: list[SavedCheckpoint]) -> None:
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


def _row(subject: Subject, entry: SavedCheckpoint) -> None:
    files, reward = entry.files, entry.validation_reward
    with tag("tr"):
        with tag("td"), tag("div", "s-row"):
            tag_text("strong", f"Step {entry.step}")
            for mark in ("best", "latest"):
                if getattr(entry, mark):
                    badge(mark)
        tag_text("td", "HuggingFace, adapter" if "adapter_config.json" in files else "HuggingFace")
        tag_text("td", str(len(files)), "mono")
        tag_text("td", size(entry.bytes), "mono")
        tag_text("td", "–" if reward is None else f"{reward:.3f}", "mono")
        with tag("td"):
            since(entry.created_at)
        with tag("td"), tag("div", "s-row"):
            _actions(subject, entry)


def _actions(subject: Subject, entry: SavedCheckpoint) -> None:
    async def deploy() -> None:
        name = f"{subject.name}-step-{entry.step}"
        try:
            await services().deployments.create(entry.id, name)
        except StropError as error:
            failed(error.message)
        else:
            ui.navigate.to(f"/playground?model={name}")

    button("Details", lambda: _details(entry))
    button("Deploy", deploy)
    button("Evaluate", lambda: ui.navigate.to(f"/evaluate?checkpoint={entry.id}"))
    button("Download", lambda: ui.navigate.to(f"/v1/strop/checkpoints/{entry.id}/archive"))
    if subject.newest.job is not None:
        fork = f"/jobs/new?clone={subject.newest.job.id}&checkpoint={entry.id}"
        button("Fork", lambda: ui.navigate.to(fork))


def _details(entry: SavedCheckpoint) -> None:
    with ui.dialog() as dialog, tag("div", "s-dialog"):
        tag_text("h2", f"Step {entry.step}")
        with tag("div", "s-table-wrap"), tag("table", "s-table"), tag("tbody"):
            for name, count in sorted(entry.files.items()):
                with tag("tr"):
                    tag_text("td", name, "mono")
                    tag_text("td", size(count), "mono s-number")
        button("Close", dialog.close)
    dialog.on("hide", dialog.delete)
    dialog.open()
