"""The files of a run."""

from __future__ import annotations

from typing import Literal

from strop.services.container import Services
from strop.services.objects import Answer
from strop.services.threads import in_thread
from strop.store.filetree import Entry, FileTree

ALL_ROLLOUTS = "rollouts.jsonl"
"""The files of all steps one after the other; it is put together while it is sent."""


class FileEntry(Answer):
    """A file, or a folder with all that is in it."""

    path: str
    """From the folder of the run on."""
    name: str
    kind: Literal["file", "folder"]
    bytes: int
    files: int
    """1 for a file."""
    modified_at: int


class FileList(Answer):
    """What stands in a folder, folders first. Hidden files and links are left out."""

    object: Literal["run.files"] = "run.files"
    run_id: str
    folder: str
    data: list[FileEntry]


@in_thread
def list_folder(services: Services, run_id: str, folder: str = "") -> FileList:
    """The files of a run, one folder at a time. `rollouts.jsonl` stands for all files of `rollouts`."""
    entries = tree(services, run_id).entries(folder)
    if not folder:
        parts = [entry for entry in entries if entry.path == "rollouts" and entry.kind == "folder" and entry.files]
        together = [Entry(ALL_ROLLOUTS, "file", part.bytes, 1, part.modified_at) for part in parts]
        entries = [*entries, *(entry for entry in together if entry.path not in {known.path for known in entries})]
    return FileList(run_id=run_id, folder=folder, data=[_shown(entry) for entry in entries])


def tree(services: Services, run_id: str) -> FileTree:
    """The files of a run; blocks. NotFound for an unknown run."""
    return FileTree(services.ingester.folder(run_id))


def _shown(entry: Entry) -> FileEntry:
    name = entry.path.rpartition("/")[2]
    return FileEntry(**{**vars(entry), "name": name, "modified_at": int(entry.modified_at)})
