"""Files through OpenAI's client, and what others may try with them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import openai
import pytest
from openai import OpenAI

from served import connected, services
from strop.services.container import Services

ROWS = b'{"messages": [{"role": "user", "content": "one"}], "answer": 1}\n{"prompt": "two"}\n'


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    with services(tmp_path_factory.mktemp("data")) as given:
        yield given


@pytest.fixture(scope="module")
def client(given: Services) -> Iterator[OpenAI]:
    with connected(given) as client:
        yield client


def post(client: OpenAI, **parts: object) -> httpx.Response:
    """A form as it is, without the client's help."""
    return httpx.post(f"{client.base_url}files", **parts)  # type: ignore[arg-type]


def test_a_file_is_uploaded_found_read_and_deleted(client: OpenAI) -> None:
    file = client.files.create(file=("rows.jsonl", ROWS), purpose="fine-tune")
    assert file.id.startswith("file-")
    assert (file.object, file.bytes, file.filename, file.purpose) == ("file", len(ROWS), "rows.jsonl", "fine-tune")
    assert file.status == "processed"
    assert file.expires_at is None
    assert file.rows == 2  # type: ignore[attr-defined]
    assert client.files.retrieve(file.id) == file
    assert client.files.wait_for_processing(file.id) == file
    assert client.files.content(file.id).read() == ROWS
    deleted = client.files.delete(file.id)
    assert (deleted.id, deleted.object, deleted.deleted) == (file.id, "file", True)
    with pytest.raises(openai.NotFoundError) as caught:
        client.files.retrieve(file.id)
    assert (caught.value.code, caught.value.param) == ("not_found", "file_id")


def test_a_path_is_uploaded_by_its_name(client: OpenAI, tmp_path: Path) -> None:
    path = tmp_path / "zeilen.jsonl"
    path.write_bytes(ROWS)
    assert client.files.create(file=path, purpose="fine-tune").filename == "zeilen.jsonl"


def test_faults_are_listed_by_line_and_nothing_is_stored(client: OpenAI) -> None:
    before = [file.id for file in client.files.list()]
    with pytest.raises(openai.BadRequestError) as caught:
        client.files.create(file=("rows.jsonl", ROWS + b'{"prompt": 3}\n{oops}\n'), purpose="fine-tune")
    assert (caught.value.code, caught.value.param) == ("invalid_data", "file")
    assert "rows.jsonl:3: " in caught.value.message
    assert "rows.jsonl:4: " in caught.value.message
    assert [file.id for file in client.files.list()] == before


def test_a_pickle_is_no_data(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError):
        client.files.create(file=("rows.jsonl", b"\x80\x04cos\nsystem\n(S'true'\ntR."), purpose="fine-tune")


def test_lists_go_on_behind_a_cursor(client: OpenAI) -> None:
    for file in client.files.list():
        client.files.delete(file.id)
    ids = [client.files.create(file=(f"{i}.txt", b"x"), purpose="user_data").id for i in range(5)]
    client.files.create(file=("rows.jsonl", ROWS), purpose="fine-tune")
    first = client.files.list(purpose="user_data", limit=2, order="asc")
    assert ([file.id for file in first.data], first.has_more) == (ids[:2], True)
    assert [file.id for file in first] == ids  # the client asks for the other pages
    assert [file.id for file in client.files.list(purpose="user_data")] == ids[::-1]
    with pytest.raises(openai.NotFoundError):
        client.files.list(after="file-0")


def test_a_file_can_expire(client: OpenAI) -> None:
    after = {"anchor": "created_at", "seconds": 3600}
    file = client.files.create(file=("a.txt", b"x"), purpose="user_data", expires_after=after)  # type: ignore[arg-type]
    assert file.expires_at is not None
    assert 3599 <= file.expires_at - file.created_at <= 3601


@pytest.mark.parametrize(
    ("data", "param"),
    [
        ({}, "purpose"),
        ({"purpose": "anything"}, "purpose"),
        ({"purpose": "batch", "expires_after[anchor]": "created_at"}, "expires_after"),
        ({"purpose": "batch", "expires_after[seconds]": "3600"}, "expires_after"),
        (
            {"purpose": "batch", "expires_after[anchor]": "created_at", "expires_after[seconds]": "1"},
            "expires_after[seconds]",
        ),
    ],
)
def test_a_form_with_a_fault_names_the_field(client: OpenAI, data: dict[str, str], param: str) -> None:
    answer = post(client, files={"file": ("a.txt", b"x")}, data=data)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


def test_a_form_without_a_file_is_refused(client: OpenAI) -> None:
    answer = post(client, files={"other": ("a.txt", b"x")}, data={"purpose": "batch"})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "file")
    answer = post(client, files={"file": (None, b"x")}, data={"purpose": "batch"})
    assert answer.status_code == 400


@pytest.mark.parametrize("name", ["../../../etc/cron.d/evil", "/etc/passwd", "..", "a/../../b", "..\\..\\x.jsonl"])
def test_a_file_name_is_no_path(client: OpenAI, given: Services, name: str) -> None:
    around = {path for path in given.folder.path.parent.rglob("*") if path.parent != given.folder.files}
    answer = post(client, files={"file": (name, ROWS)}, data={"purpose": "fine-tune"})
    assert answer.status_code == 200
    assert "/" not in answer.json()["filename"]
    assert {path for path in given.folder.path.parent.rglob("*") if path.parent != given.folder.files} == around


@pytest.mark.parametrize("file_id", ["..%2F..%2Fsecret.key", "%2e%2e", "..", "file-0%00", "%2Fetc%2Fpasswd"])
def test_an_id_is_no_path(client: OpenAI, given: Services, file_id: str) -> None:
    given.secrets.set("TOKEN", "rosebud")
    for method, path in (("GET", "/content"), ("GET", ""), ("DELETE", "")):
        answer = httpx.request(method, f"{client.base_url}files/{file_id}{path}")
        assert answer.status_code in (404, 405)
    assert given.folder.secret_key.exists()


def test_a_page_among_the_files_does_not_run(client: OpenAI) -> None:
    page = b"<script>alert(document.domain)</script>"
    file = client.files.create(file=('evil".html', page, "text/html"), purpose="user_data")
    answer = client.files.with_raw_response.content(file.id)
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"] == "attachment; filename*=UTF-8''evil%2522.html"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in answer.headers["content-security-policy"]
    assert answer.content == page


def test_a_name_breaks_no_header(client: OpenAI) -> None:
    answer = post(client, files={"file": ("a\r\nset-cookie: x=1", b"x")}, data={"purpose": "batch"})
    if answer.status_code == 200:  # the client has escaped it
        found = httpx.get(f"{client.base_url}files/{answer.json()['id']}/content")
        assert "set-cookie" not in found.headers


def test_a_download_goes_on_while_the_file_is_deleted(client: OpenAI) -> None:
    content = b"0123456789abcdef" * 1024 * 1024
    file = client.files.create(file=("big.bin", content), purpose="batch")
    with client.files.with_streaming_response.content(file.id) as answer:
        pieces = answer.iter_bytes(1024)
        begin = next(pieces)
        client.files.delete(file.id)
        assert begin + b"".join(pieces) == content


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder with room for eight MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    options = ["-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)]
    if subprocess.run(["mount", *options], capture_output=True, check=False).returncode:
        pytest.skip("mounting a small disk needs root")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def test_a_full_disk_refuses_an_upload_and_keeps_what_was_there(small_disk: Path) -> None:
    content = b"x" * 4 * 1024 * 1024
    with services(small_disk / "data") as given, connected(given) as client:
        first = client.files.create(file=("a.bin", content), purpose="batch")
        with pytest.raises(openai.APIStatusError) as caught:
            client.files.create(file=("b.bin", content), purpose="batch")
        assert (caught.value.status_code, caught.value.code) == (507, "disk_full")
        assert [path.name for path in given.folder.files.iterdir()] == [first.id]
        assert client.files.content(first.id).read() == content
        client.files.delete(first.id)
        assert client.files.create(file=("b.bin", content), purpose="batch").bytes == len(content)
