"""`/v1/files`: uploads, checked row by row, and their content."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, BinaryIO, Literal
from urllib.parse import quote

from fastapi import APIRouter, File, Form, Query, UploadFile
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from strop.api.dependencies import Provided
from strop.api.paging import After, Page, page
from strop.errors import InvalidRequest
from strop.services.container import Settings
from strop.store import uploads
from strop.store.uploads import MAX_FILES

router = APIRouter(prefix="/files")

_CHUNK = 1024 * 1024
_FORM_BYTES = Settings().max_upload_bytes + 64 * 1024  # a form adds a little to the file in it

Purpose = Literal["assistants", "batch", "fine-tune", "vision", "user_data", "evals"]


class FileObject(BaseModel):
    """A file in OpenAI's shape, and what strop knows beyond that."""

    object: Literal["file"] = "file"
    id: str
    bytes: int
    created_at: int
    filename: str
    purpose: str
    status: str
    status_details: str | None = None
    expires_at: int | None = None
    rows: int | None = Field(None, description="Rows, for files of purpose fine-tune.")
    sha256: str = Field(description="Of the content.")

    @classmethod
    def of(cls, file: uploads.File) -> FileObject:
        expires_at = None if file.expires_at is None else int(file.expires_at)
        return cls.model_validate({**vars(file), "created_at": int(file.created_at), "expires_at": expires_at})


class DeletedFile(BaseModel):
    """A file that is gone."""

    object: Literal["file"] = "file"
    id: str
    deleted: bool = True


@router.post("", max_body_size=_FORM_BYTES)
def upload_file(
    services: Provided,
    file: Annotated[UploadFile, File(description="Content, with a file name.")],
    purpose: Annotated[Purpose, Form(description="`fine-tune` is JSONL, whose rows are checked.")],
    anchor: Annotated[Literal["created_at"] | None, Form(alias="expires_after[anchor]")] = None,
    seconds: Annotated[int | None, Form(alias="expires_after[seconds]", ge=3600, le=2_592_000)] = None,
) -> FileObject:
    """Store a file. With any fault in its rows nothing is stored, and the error lists them by line."""
    if (anchor is None) != (seconds is None):
        raise InvalidRequest("expires_after has an anchor and seconds, or is left out", param="expires_after")
    added = services.files.add(file.filename or "", purpose, _chunks(file.file), expires_after=seconds)
    return FileObject.of(added)


@router.get("")
def list_files(
    services: Provided,
    purpose: Annotated[str | None, Query(description="Only files of this purpose.")] = None,
    order: Annotated[Literal["asc", "desc"], Query(description="By time of upload.")] = "desc",
    after: After = None,
    limit: Annotated[int, Query(ge=1, le=MAX_FILES)] = MAX_FILES,
) -> Page[FileObject]:
    """Files, the newest first."""
    found = services.files.list(purpose=purpose, order=order, after=after, limit=limit)
    return page([FileObject.of(file) for file in found], limit)


@router.get("/{file_id}")
def get_file(file_id: str, services: Provided) -> FileObject:
    """One file, without its content."""
    return FileObject.of(services.files.get(file_id))


@router.get(
    "/{file_id}/content",
    response_class=StreamingResponse,
    responses={200: {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}},
)
def get_content(file_id: str, services: Provided) -> StreamingResponse:
    """The content, as it was uploaded. A download goes on although the file is deleted meanwhile."""
    file, content = services.files.open(file_id)
    headers = {
        "content-length": str(file.bytes),
        # Always a download: a browser must not run uploaded content.
        "content-disposition": f"attachment; filename*=UTF-8''{quote(file.filename, safe='')}",
    }
    return StreamingResponse(_chunks(content), media_type="application/octet-stream", headers=headers)


@router.delete("/{file_id}")
def delete_file(file_id: str, services: Provided) -> DeletedFile:
    """Delete a file; refused while a job, an evaluation or a data set needs it."""
    services.files.delete(file_id)
    return DeletedFile(id=file_id)


def _chunks(source: BinaryIO) -> Iterator[bytes]:
    with source:
        while chunk := source.read(_CHUNK):
            yield chunk
