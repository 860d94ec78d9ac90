"""`/v1/strop/runs/{id}/files`: the files of a run, to list and to download."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Path, Query
from starlette.responses import StreamingResponse

from strop.api.answers import Answer, RunId
from strop.api.dependencies import Provided
from strop.api.services import Services
from strop.errors import NotFound
from strop.store.archive import zip_files
from strop.store.filetree import Entry, FileTree, chunks

router = APIRouter()

ALL_ROLLOUTS = "rollouts.jsonl"
"""The files of all steps one after the other; it is put together while it is sent."""


def download(kind: str) -> dict[int | str, dict[str, Any]]:
    """`responses` of a route that answers with a file."""
    return {200: {"content": {kind: {"schema": {"type": "string", "format": "binary"}}}}}


BINARY, ZIP = download("application/octet-stream"), download("application/zip")
Folder = Annotated[str, Query(description="A folder inside; by default the folder of the run.")]


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


@router.get("/runs/{run_id}/files")
def list_files(run_id: RunId, services: Provided, folder: Folder = "") -> FileList:
    """The files of a run, one folder at a time. `rollouts.jsonl` stands for all files of `rollouts`."""
    entries = tree(services, run_id).entries(folder)
    if not folder:
        parts = [entry for entry in entries if entry.path == "rollouts" and entry.kind == "folder" and entry.files]
        together = [Entry(ALL_ROLLOUTS, "file", part.bytes, 1, part.modified_at) for part in parts]
        entries = [*entries, *(entry for entry in together if entry.path not in {known.path for known in entries})]
    return FileList(run_id=run_id, folder=folder, data=[file_entry(entry) for entry in entries])


@router.get("/runs/{run_id}/archive", response_class=StreamingResponse, responses=ZIP)
def download_archive(run_id: RunId, services: Provided, folder: Folder = "") -> StreamingResponse:
    """All files of a run, or of a folder in it, as a zip archive that is written while it is sent."""
    files = tree(services, run_id)
    files.entries(folder)  # NotFound, before the answer begins
    name = f"{run_id}-{folder.replace('/', '-')}.zip" if folder else f"{run_id}.zip"
    return attachment(zip_files(files, files.files(folder), folder), name, "application/zip")


@router.get("/runs/{run_id}/files/{path:path}", response_class=StreamingResponse, responses=BINARY)
def download_file(
    run_id: RunId, path: Annotated[str, Path(description="As listed.")], services: Provided
) -> StreamingResponse:
    """One file. It is sent to its end although it grows or is deleted meanwhile; ranges are not offered."""
    files = tree(services, run_id)
    try:
        return whole_file(files, path)
    except NotFound:
        if path != ALL_ROLLOUTS:
            raise
    parts = files.files("rollouts")
    return attachment(_joined(files, [part.path for part in parts]), path)


def tree(services: Services, run_id: str) -> FileTree:
    """The files of a run. NotFound for an unknown run."""
    return FileTree(services.ingester.folder(run_id))


def file_entry(entry: Entry) -> FileEntry:
    """An entry as lists show it."""
    name = entry.path.rpartition("/")[2]
    return FileEntry(**{**vars(entry), "name": name, "modified_at": int(entry.modified_at)})


def whole_file(files: FileTree, path: str) -> StreamingResponse:
    """The download of a file as it is now. NotFound where there is none."""
    file = files.open(path)
    size = file.seek(0, 2)
    file.seek(0)
    return attachment(chunks(file, size), path.rpartition("/")[2], size=size)


def attachment(
    content: Iterator[bytes], name: str, kind: str = "application/octet-stream", size: int | None = None
) -> StreamingResponse:
    """A download: never shown in place, since what a model or a user wrote is for no browser to run."""
    headers = {
        "content-disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}",
        "x-content-type-options": "nosniff",
        "accept-ranges": "none",
    }
    if size is not None:
        headers["content-length"] = str(size)
    return StreamingResponse(content, media_type=kind, headers=headers)


def _joined(files: FileTree, paths: list[str]) -> Iterator[bytes]:
    for path in paths:
        try:
            file = files.open(path)
        except NotFound:  # the run was resumed from an earlier step
            continue
        yield from chunks(file)
