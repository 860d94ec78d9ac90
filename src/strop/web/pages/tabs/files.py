"""The files of a run, to download, and its logs."""

from __future__ import annotations

from strop.store.filetree import FileTree
from strop.web.components import LogTail
from strop.web.context import Address
from strop.web.numbers import size
from strop.web.pages.tabs.subject import Subject
from strop.web.theme import tag, tag_text

ABOUT = {
    "checkpoint_status.json": "state of the checkpoints",
    "training.log": "one line a step",
    "raw_output.log": "all output of the training process",
    "rollouts.jsonl": "every rollout; put together when it is downloaded",
    "metrics.jsonl": "every metric of every step",
    "config.toml": "the resolved configuration",
    "run.json": "versions and hardware",
    "status.json": "what the run is doing",
}


def build_files(subject: Subject, address: Address) -> None:
    """Every file, each with a download, and all of them at once."""
    base = f"/v1/strop/runs/{subject.run_id}"
    entries = FileTree(subject.services.ingester.folder(subject.run_id or "")).entries("")
    with tag("div", "s-row"):
        tag_text("p", "What the run left on disk.", "s-muted s-grow")
        tag_text("a", "Download all", "s-download", f'href="{base}/archive"')
    with tag("div", "s-table-wrap"), tag("table", "s-table"):
        with tag("thead"), tag("tr"):
            for name in ("File", "What it is", "Size", ""):
                tag_text("th", name)
        with tag("tbody"):
            for entry in entries:
                with tag("tr"):
                    tag_text("td", entry.path, "mono")
                    tag_text("td", _about(entry.path), "s-muted")
                    tag_text("td", size(entry.bytes), "mono s-number")
                    with tag("td"):
                        tag_text(
                            "a", "Download", "", f'href="{base}/files/{entry.path}" aria-label="Download {entry.path}"'
                        )


def build_logs(subject: Subject, address: Address) -> None:
    """The end of the logs, followed."""
    LogTail(subject.run_id or "")


def _about(path: str) -> str:
    if path.startswith("global_dataset_state_dict_"):
        return "order of the rows, for resuming"
    return ABOUT.get(path, "")
