"""The files of a run, to download, and its logs."""

from __future__ import annotations

from urllib.parse import quote

from nicegui import ui

from strop.services import run_files
from strop.services.numbers import size
from strop.services.run_files import FileEntry
from strop.web.components import LogTail
from strop.web.context import Address, services
from strop.web.pages.tabs.subject import Subject
from strop.web.theme import tag, tag_text

ABOUT = {
    "checkpoint_status.json": "state of the checkpoints",
    "training.log": "one line a step",
    "raw_output.log": "all output of the training process",
    "rollouts.jsonl": "all rollouts in one file, assembled on download",
    "metrics.jsonl": "every metric of every step",
    "config.toml": "the resolved configuration",
    "run.json": "versions and hardware",
    "status.json": "what the run is doing",
}


async def build_files(subject: Subject, address: Address) -> None:
    """Every file, each with a download, and all of them at once."""
    base = f"/v1/strop/runs/{subject.run_id}"
    entries = (await run_files.list_folder(services(), subject.run_id)).data
    with tag("div", "s-row"):
        tag_text("p", "What the run left on disk.", "s-muted s-grow")
        ui.link("Download all", f"{base}/archive")
    with tag("div", "s-table-wrap"), tag("table", "s-table"):
        with tag("thead"), tag("tr"):
            for name in ("File", "Description", "Size", ""):
                tag_text("th", name)
        with tag("tbody"):
            for entry in entries:
                _row(base, entry)


def _row(base: str, entry: FileEntry) -> None:
    folder = entry.kind == "folder"
    path = quote(entry.path)
    with tag("tr"):
        tag_text("td", entry.path + ("/" if folder else ""), "mono")
        tag_text("td", f"{entry.files} files" if folder else _about(entry.path), "s-muted")
        tag_text("td", size(entry.bytes), "mono s-number")
        with tag("td"):
            ui.link("Download", f"{base}/archive?folder={path}" if folder else f"{base}/files/{path}")


async def build_logs(subject: Subject, address: Address) -> None:
    """The end of the logs, followed."""
    LogTail(subject.run_id)


def _about(path: str) -> str:
    if path.startswith("global_dataset_state_dict_"):
        return "row order and position, for resuming"
    return ABOUT.get(path, "")
