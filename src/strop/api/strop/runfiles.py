"""`/v1/strop/runs/{id}/files`: the files of a run, to list and to download."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Path, Query
from starlette.responses import StreamingResponse

from strop.api.answers import RunId
from strop.api.dependencies import Provided
from strop.errors import NotFound
from strop.services import run_files
from strop.services.run_files import ALL_ROLLOUTS, FileList, tree
from strop.store.archive import zip_files
from strop.store.filetree import FileTree, chunks

router = APIRouter()


def download(kind: str) -> dict[int | str, dict[str, Any]]:
    """`responses` of a route that answers with a file."""
    return {200: {"content": {kind: {"schema": {"type": "string", "format": "binary"}}}}}


BINARY, ZIP = download("application/octet-stream"), download("application/zip")
Folder = Annotated[str, Query(description="A folder inside; by default the folder of the run.")]


@router.get("/runs/{run_id}/files")
async def list_files(run_id: RunId, services: Provided, folder: Folder = "") -> FileList:
    """The files of a run, one folder at a time. `rollouts.jsonl` stands for all files of `rollouts`."""
    return await run_files.list_folder(services, run_id, folder)


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
